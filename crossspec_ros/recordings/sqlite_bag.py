"""Databases of rosbag2 from anybody: their topics, and the messages of those that are wanted."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rosbags.interfaces import Connection, ConnectionExtRosbag2, MessageDefinition, MessageDefinitionFormat

from crossspec_ros.errors import InputError
from crossspec_ros.recordings.bag_budget import MOST_ROW, STEPS, Budget, check_topics
from crossspec_ros.recordings.unpacking import MOST_UNPACKED, TooLarge

_SHARED = "SELECT count(*) > count(DISTINCT CASE typeof(id) WHEN 'integer' THEN id END) FROM topics"
_BYTES = "CASE typeof({0}) WHEN 'blob' THEN length({0}) WHEN 'text' THEN length(CAST({0} AS BLOB)) ELSE 0 END"
"""Bytes of a column that is no number; of a blob, SQLite reads nothing but its length."""
_TABLES = ("topics", "messages", "schema", "metadata")
_NO_DEFINITION = MessageDefinition(MessageDefinitionFormat.NONE, "")


class SqliteReader:
    """An open file; raises TooLarge where it would take absurdly much, and any other exception for damage.

    It takes no more steps than fit the size of its file: a crafted tree leads through the same pages again
    and again.
    """

    def __init__(self, file: Path, budget: Budget) -> None:
        self._file, self._budget = file, budget
        self._measured = set[frozenset[int]]()
        self._database = sqlite3.connect(read_only(file), uri=True, check_same_thread=False)
        self._database.set_progress_handler(budget.walk, STEPS)
        try:
            with self._bounded():
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
        with self._bounded():
            self._check_longest(frozenset(wanted))
            rows = self._database.execute(
                f"SELECT topic_id, timestamp, data FROM messages WHERE topic_id IN ({_marks(wanted)}) "
                f"AND timestamp >= ? ORDER BY timestamp",
                (*wanted, -1 << 63 if start is None else start),
            )
            for number, recorded_ns, data in rows:
                yield wanted[number], int(recorded_ns), data

    def _open(self) -> None:
        check_tables(self._file, self._database)
        for table in ("topics", "messages"):
            self._check_size(table)
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

    def _check_size(self, table: str) -> None:
        """Raise TooLarge where rows share their bytes: a table may be sorted, or kept, as a whole."""
        columns = self._database.execute(f"PRAGMA table_info({table})").fetchall()
        names = [column[1].replace('"', '""') for column in columns]
        if not names:
            raise ValueError(f"it has no table of {table}")
        size = "+".join(_BYTES.format(f'"{name}"') for name in names)
        # Where a recorder was killed, some rows lack their ends.
        left = self._file.stat().st_size + MOST_UNPACKED
        for row, (count,) in enumerate(self._database.execute(f"SELECT {size} FROM {table}"), 1):
            self._budget.time.check()
            if table == "topics":
                check_topics(row)
                self._budget.take_text(count)
            left -= count
            if left < 0:
                raise TooLarge(
                    "has a table of more bytes than its file, as no recorder writes: check where it comes "
                    "from, and record it again"
                )

    def _check_longest(self, topics: frozenset[int]) -> None:
        """Raise TooLarge where a message of these topics is; those of others are never read."""
        if topics in self._measured:
            return
        ((longest,),) = self._database.execute(
            f"SELECT max({_BYTES.format('data')}) FROM messages WHERE topic_id IN ({_marks(topics)})",
            tuple(topics),
        )
        if (longest or 0) > MOST_ROW:
            raise TooLarge(
                f"has a message of {longest} bytes, more than the {MOST_ROW >> 20} MB that are read: record "
                f"smaller ones, or without its topic"
            )
        self._measured.add(topics)

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error:
            if self._budget.is_walked_through:
                raise TooLarge(
                    "walks through more of its database than there is: check where it comes from, and record "
                    "it again"
                ) from None
            raise


def _marks(values: Collection[Any]) -> str:
    return ",".join("?" * len(values))


def read_only(file: Path) -> str:
    """Address that opens a database so that nothing is written beside it."""
    return f"{file.resolve().as_uri()}?mode=ro&immutable=1"


def check_tables(file: Path, database: sqlite3.Connection) -> None:
    """Raise InputError where a table of a bag is computed and not stored, or topics lack their own numbers.

    Of damage nothing is said.
    """
    try:
        # Not by sqlite_master, which may say anything.
        kinds = {name.lower(): kind for _, name, kind, *_ in database.execute("PRAGMA table_list")}
        computed = [name for name in _TABLES if kinds.get(name, "table") != "table"]
        for name in _TABLES:
            columns = database.execute(f"PRAGMA table_xinfo({name})")
            computed += [f"{name}.{column[1]}" for column in columns if column[6]]
        # The reader counts each message once for each topic of its number.
        shared = not computed and database.execute(_SHARED).fetchone()[0]
    except sqlite3.Error:
        return
    if shared:
        raise InputError(
            f"'{file}' has topics that share a number or have none, as no recorder writes: check where it "
            f"comes from, and record it again"
        )
    if computed:
        raise InputError(
            f"'{file}' computes '{computed[0]}' in place of storing it, as no recorder does: check where it "
            f"comes from, and record it again"
        )
