"""Bags from anybody: what is checked before rosbags reads them, and where it is bounded while it does.

rosbags unpacks whatever it is given in one go, so what it unpacks with is replaced here. It would also read
the YAML of each topic's QoS, which nobody asks for.
"""

from __future__ import annotations

import sqlite3
import struct
from array import array
from bisect import bisect_left
from bz2 import BZ2Decompressor
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path, PurePath
from types import SimpleNamespace
from typing import Any, BinaryIO

from lz4.frame import LZ4FrameDecompressor
from rosbags.interfaces import Connection
from rosbags.rosbag1 import reader as ros1
from rosbags.rosbag2 import reader as ros2
from rosbags.rosbag2 import storage_mcap, storage_sqlite3

from crossspec_ros.errors import InputError
from crossspec_ros.recordings.bag_budget import (
    MOST_ROW,
    STEPS,
    Budget,
    Described,
    Spent,
    budget_of,
    check_text,
    check_topics,
    current,
)
from crossspec_ros.recordings.unpacking import (
    MOST_TIMES,
    MOST_UNPACKED,
    TooLarge,
    check_part,
    open_zstd,
    unpack,
    zstd,
)
from crossspec_ros.yaml_files import TooMuchYaml, read_yaml

_MOST_OPEN = 128 << 20
"""Bytes of the chunks whose messages are merged at a time; as a rule these are two."""
_MCAP_MESSAGE, _MCAP_CHUNK = 0x05, 0x06
_SHARED = "SELECT count(*) > count(DISTINCT CASE typeof(id) WHEN 'integer' THEN id END) FROM topics"
_BYTES = "CASE typeof({0}) WHEN 'blob' THEN length({0}) WHEN 'text' THEN length(CAST({0} AS BLOB)) ELSE 0 END"
"""Of a column that is no number; of a blob, SQLite reads nothing but its length."""
_apsw = vars(storage_sqlite3)["apsw"]
_ESCAPES = {ord(character): f"%{ord(character):02X}" for character in "%?#"}
_DESCRIBING = ("topics", "message_definitions")
_TABLES = (*_DESCRIBING, "messages", "schema", "metadata")

unzstd = partial(unpack, decompressor=zstd.ZstdDecompressor)
unlz4 = partial(unpack, decompressor=LZ4FrameDecompressor)
unbz2 = partial(unpack, decompressor=BZ2Decompressor)


class _Chunks(list[Any]):
    """The chunks of an mcap, as they are read from its index; raises TooLarge for absurdly many, and where
    they unpack to absurdly much, even where the index names some again and again.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def append(self, chunk: Any) -> None:
        check_part(max(chunk.uncompressed_size, chunk.compressed_size))
        self._budget.unpacked.add(chunk.uncompressed_size)
        self._budget.take_chunk(len(chunk.channel_count))
        # They have been counted, and nobody asks for them again.
        super().append(chunk._replace(message_index_offsets={}, channel_count=_Counts(chunk.channel_count)))


class _Counts:
    """How many messages of each topic are in a chunk, for what is asked of it: a dictionary of some hundred
    topics for each of some thousand chunks takes too much.
    """

    def __init__(self, counts: dict[int, int]) -> None:
        self._topics = array("H", sorted(counts))
        self._counts = array("q", map(counts.__getitem__, self._topics))

    def get(self, topic: int, default: int) -> int:
        at = bisect_left(self._topics, topic)
        return self._counts[at] if at < len(self._topics) and self._topics[at] == topic else default

    def values(self) -> Iterable[int]:
        return self._counts

    def items(self) -> Iterable[tuple[int, int]]:
        return zip(self._topics, self._counts, strict=True)


class _Connections(list[Any]):
    """The topics of a file, through which rosbags goes for each of the bag's, again and again."""

    def __init__(self, connections: Iterable[Connection], budget: Budget) -> None:
        super().__init__(connections)
        self._budget = budget

    def __iter__(self) -> Iterator[Any]:
        self._budget.time.check()
        return super().__iter__()


class _Mcap(storage_mcap.McapReader):
    """One whose chunks, and whose topics, are not too much together."""

    def __init__(self, path: Any) -> None:
        super().__init__(path)
        self._budget, self._is_checked = budget_of(path), False
        self.schemas, self.channels = Described(self._budget), Described(self._budget)
        self.chunks = _Chunks(self._budget)

    def _open(self) -> None:
        super()._open()
        self.connections = _Connections(self.connections, self._budget)

    def read_index(self) -> None:
        super().read_index()
        # Then all that are there are unpacked.
        if not self.chunks:
            self._check()

    def meta_scan(self) -> None:
        self._check()
        super().meta_scan()

    def _check(self) -> None:
        if self._is_checked:
            return
        for size in self._sizes():
            check_part(size)
            self._budget.unpacked.add(size)
        self._is_checked = True

    def _sizes(self) -> Iterator[int]:
        """Sizes of chunks, unpacked or as they are, and of messages beside them, without the index."""
        assert self.bio
        at = self.data_start
        while at < self.data_end:
            self.bio.seek(at)
            head = self.bio.read(33)
            if len(head) < 33:
                return
            self._budget.records.add(0)
            opcode, length, size = struct.unpack("<BQ16xQ", head)
            there = min(length, self.data_end - at)
            if opcode == _MCAP_CHUNK:
                yield max(size, there)
            elif opcode == _MCAP_MESSAGE:
                yield there
            at += 9 + length


class _Sqlite3(storage_sqlite3.Sqlite3Reader):
    """One that has been checked, whatever the file is called and wherever it was unpacked to, and that takes
    no more steps than fit the size of its file: a crafted tree leads through the same pages again and again.
    """

    def __init__(self, path: Any) -> None:
        # rosbags makes a URI of it as it is.
        super().__init__(Path(str(path).translate(_ESCAPES)))
        self._file = Path(str(path))
        self._budget = budget_of(self._file)
        self._measured = set[frozenset[int]]()

    def open(self) -> None:
        with self._bounded():
            with closing(sqlite3.connect(read_only(self._file), uri=True)) as database:
                database.set_progress_handler(self._budget.walk, STEPS)
                check_tables(self._file, database)
            _apsw.connection_hooks.append(self._bound)
            try:
                super().open()
            finally:
                _apsw.connection_hooks.remove(self._bound)

    def _open(self) -> None:
        for table in _TABLES:
            self._check_size(table)
        super()._open()
        self.connections = _Connections(self.connections, self._budget)

    def _check_size(self, table: str) -> None:
        """Raise TooLarge where rows share their bytes: a table may be sorted, or kept, as a whole."""
        database: Any = self.dbconn
        names = [column[1].replace('"', '""') for column in database.execute(f"PRAGMA table_info({table})")]
        if not names:
            return
        size = "+".join(_BYTES.format(f'"{name}"') for name in names)
        # Where a recorder was killed, some rows lack their ends.
        left = self._file.stat().st_size + MOST_UNPACKED
        for row, (count,) in enumerate(database.execute(f"SELECT {size} FROM {table}"), 1):
            self._budget.time.check()
            if table in _DESCRIBING:
                check_topics(row)
                self._budget.take_text(count)
            left -= count
            if left < 0:
                raise TooLarge(
                    "has a table of more bytes than its file, as no recorder writes: check where it comes "
                    "from, and record it again"
                )

    def messages(
        self, connections: Collection[Connection], start: int | None = None, stop: int | None = None
    ) -> Generator[tuple[Connection, int, bytes], None, None]:
        with self._bounded():
            self._check_longest(frozenset(connection.id for connection in connections))
            yield from super().messages(connections, start, stop)

    def _check_longest(self, topics: frozenset[int]) -> None:
        """Raise TooLarge where a message of these topics is; those of others are never read."""
        if topics in self._measured:
            return
        database: Any = self.dbconn
        ((longest,),) = database.execute(
            f"SELECT max({_BYTES.format('messages.data')}) FROM messages JOIN topics "
            f"ON messages.topic_id = topics.id WHERE topics.id IN ({','.join('?' * len(topics))})",
            tuple(topics),
        )
        if (longest or 0) > MOST_ROW:
            raise TooLarge(
                f"has a message of {longest} bytes, more than the {MOST_ROW >> 20} MB that are read: record "
                f"smaller ones, or without its topic"
            )
        self._measured.add(topics)

    def _bound(self, connection: Any) -> None:
        connection.set_progress_handler(self._budget.walk, STEPS)

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        try:
            yield
        except (_apsw.Error, ros2.ReaderError):
            if self._budget.is_walked_through:
                raise TooLarge(
                    "walks through more of its database than there is: check where it comes from, and record "
                    "it again"
                ) from None
            raise


class _Merged:
    """In place of rosbags' source of the messages of one chunk."""

    def __init__(self) -> None:
        self._open = 0
        self._messages = storage_mcap.msgsrc

    def __call__(self, chunk: Any, *rest: Any) -> Iterator[Any]:
        source = self._messages(chunk, *rest)
        # The first only says where the chunk belongs; with the second it is unpacked.
        yield next(source)
        if self._open and self._open + chunk.uncompressed_size > _MOST_OPEN:
            raise TooLarge(
                f"has chunks of more than {_MOST_OPEN >> 20} MB that overlap in time: record it again with "
                f"smaller chunks"
            )
        self._open += chunk.uncompressed_size
        try:
            yield from source
        finally:
            self._open -= chunk.uncompressed_size


def bound_rosbags() -> None:
    """Replace what rosbags unpacks with; to be called once."""
    storage_mcap.DECOMPRESSORS.update(
        {"": lambda data, size: _few(data, len(data))},
        zstd=lambda data, size: _few(unzstd(data), len(data)),
        lz4=lambda data, size: _few(unlz4(data), len(data)),
    )
    for reader in (ros2.DirectoryReader, ros2.Reader):
        for name, plugin in reader.STORAGE_PLUGINS.items():
            replaced = {storage_mcap.McapReader: _Mcap, storage_sqlite3.Sqlite3Reader: _Sqlite3}
            vars(reader)["STORAGE_PLUGINS"][name] = replaced.get(plugin, plugin)
    ros1.decompressors.update(bz2=unbz2, lz4=unlz4)
    vars(storage_mcap).update(msgsrc=_Merged(), read_bytes=_read_text)
    vars(ros2)["zstd"] = SimpleNamespace(decompress=unzstd, open=open_zstd, ZstdError=zstd.ZstdError)
    for module in (storage_mcap, storage_sqlite3, ros2):
        vars(module)["parse_qos"] = lambda profiles: []
    vars(storage_mcap)["get_qos"] = lambda metadata: []


def _read_text(stream: BinaryIO) -> bytes:
    size = int.from_bytes(storage_mcap.read_exact(stream, 4), "little")
    check_text(size)
    return storage_mcap.read_exact(stream, size)


def _few(chunk: bytes, packed: int) -> bytes:
    """A chunk, of which rosbags has all messages in memory; raises TooLarge for far too many in it, or in
    all."""
    spent, at = Spent(min(packed, MOST_UNPACKED // MOST_TIMES)), 0
    if (budget := current()) is not None:
        budget.time.check()
    while at + 9 <= len(chunk):
        spent.add(0)
        if budget is not None:
            budget.records.add(0)
        at += 9 + int.from_bytes(chunk[at + 1 : at + 9], "little")
    return chunk


def read_only(file: Path) -> str:
    """What opens a database so that nothing is written beside it."""
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


def check_metadata(file: Path) -> None:
    """Raise TooMuchYaml for a metadata.yaml whose reading would not end; of damage nothing is said."""
    try:
        values = read_yaml(file)
        names = values["rosbag2_bagfile_information"]["relative_file_paths"]
        files = Counter(PurePath(name).name for name in names)
    except TooMuchYaml:
        raise
    except (OSError, ValueError, TypeError, LookupError):
        return
    # As often as it is named, it is unpacked.
    if repeated := [name for name, times in files.items() if times > 1]:
        raise TooMuchYaml(f"it names the file {repeated[0]!r} more than once")
