"""Databases of rosbag2: their topics, and the messages of those that are wanted."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path

from crossspec_ros.recordings.storage import Channel, Losses

_TOPICS = "SELECT id, name, type, serialization_format FROM topics ORDER BY id"
_LARGEST_ID = 1 << 40


class SqliteReader:
    """An open file; raises any exception for damage."""

    def __init__(self, file: Path) -> None:
        self._database = _open(file)
        try:
            counts = dict(self._database.execute("SELECT topic_id, count(*) FROM messages GROUP BY topic_id"))
            ((latest,),) = self._database.execute("SELECT max(timestamp) FROM messages")
            channels = [Channel(*row) for row in self._database.execute(_TOPICS)]
        except BaseException:
            self.close()
            raise
        self.message_count, self.end_time = sum(counts.values()), 0 if latest is None else int(latest) + 1
        self.channels = [one._replace(messages=counts.get(one.number, 0)) for one in channels]

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def messages(
        self, wanted: Collection[Channel], since_ns: int | None
    ) -> Iterator[tuple[Channel, int, bytes]]:
        """The messages of these channels in the order of recording, from a time of recording on."""
        of_number = {channel.number: channel for channel in wanted}
        marks = ",".join("?" * len(of_number))
        rows = self._database.execute(
            f"SELECT topic_id, timestamp, data FROM messages WHERE topic_id IN ({marks}) "
            f"AND timestamp >= ? ORDER BY timestamp",
            (*of_number, -1 << 63 if since_ns is None else since_ns),
        )
        for number, recorded_ns, data in rows:
            # Of a number, bytes() would make as many zeros.
            yield of_number[number], int(recorded_ns), bytes(memoryview(data))


def salvage_sqlite(file: Path, losses: Losses) -> Iterator[tuple[Channel, int, bytes]]:
    """All messages of a damaged file that can be read; raises sqlite3.Error where it is no database."""
    with closing(_open(file)) as database:
        try:
            # Else a file that is shorter than its header says is not even opened.
            database.execute("PRAGMA writable_schema = ON")
            channels = {row[0]: Channel(*row) for row in database.execute(_TOPICS)}
        except sqlite3.Error as error:
            losses.append(f"{file.name} has no readable list of topics ({error})")
            return
        last = skipped = 0
        while last + skipped < _LARGEST_ID:
            try:
                # In the table's own order: sorting takes all rows first.
                for number, topic, recorded_ns, data in database.execute(
                    "SELECT id, topic_id, timestamp, data FROM messages NOT INDEXED WHERE id > ?",
                    (last + skipped,),
                ):
                    if number <= last:  # A damaged tree may lead back to what was read.
                        continue
                    last, skipped = number, 0
                    if topic in channels and isinstance(data, bytes):
                        yield channels[topic], recorded_ns, data
            except sqlite3.Error as error:
                if not skipped:
                    losses.append(f"{file.name} has no readable messages after number {last} ({error})")
                skipped = max(1, 2 * skipped)
            else:
                return


def _open(file: Path) -> sqlite3.Connection:
    """A connection that writes nothing beside the database."""
    address = f"{file.resolve().as_uri()}?mode=ro&immutable=1"
    return sqlite3.connect(address, uri=True, check_same_thread=False)
