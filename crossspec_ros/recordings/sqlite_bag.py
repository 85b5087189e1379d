"""Databases of rosbag2: their topics, and the messages of those that are wanted."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from pathlib import Path

from rosbags.interfaces import Connection, ConnectionExtRosbag2, MessageDefinition, MessageDefinitionFormat

_NO_DEFINITION = MessageDefinition(MessageDefinitionFormat.NONE, "")


class SqliteReader:
    """An open file; raises any exception for damage."""

    def __init__(self, file: Path) -> None:
        self._database = sqlite3.connect(read_only(file), uri=True, check_same_thread=False)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def messages(
        self, connections: Collection[Connection], start: int | None = None
    ) -> Iterator[tuple[Connection, int, bytes]]:
        """The messages of these topics in the order of recording, from a time of recording on."""
        wanted = {connection.id: connection for connection in connections}
        marks = ",".join("?" * len(wanted))
        rows = self._database.execute(
            f"SELECT topic_id, timestamp, data FROM messages WHERE topic_id IN ({marks}) "
            f"AND timestamp >= ? ORDER BY timestamp",
            (*wanted, -1 << 63 if start is None else start),
        )
        for number, recorded_ns, data in rows:
            yield wanted[number], int(recorded_ns), data

    def _open(self) -> None:
        counts = dict(self._database.execute("SELECT topic_id, count(*) FROM messages GROUP BY topic_id"))
        ((latest,),) = self._database.execute("SELECT max(timestamp) FROM messages")
        self.message_count, self.end_time = sum(counts.values()), 0 if latest is None else int(latest) + 1
        self.connections = [
            Connection(
                number,
                topic,
                type_name,
                _NO_DEFINITION,
                "",
                counts.get(number, 0),
                ConnectionExtRosbag2(encoding, []),
                self,
            )
            for number, topic, type_name, encoding in self._database.execute(
                "SELECT id, name, type, serialization_format FROM topics ORDER BY id"
            )
        ]


def read_only(file: Path) -> str:
    """Address that opens a database so that nothing is written beside it."""
    return f"{file.resolve().as_uri()}?mode=ro&immutable=1"
