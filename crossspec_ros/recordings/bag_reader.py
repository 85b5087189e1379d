"""One bag of ROS 2 (sqlite3 or mcap) or of ROS 1: its topics, and its messages as CDR, read without ROS."""

from __future__ import annotations

import re
import resource
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from rosbags.interfaces import Connection

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.events.messages import EVENT_TYPES
from crossspec_ros.recordings.bag_bounds import bound_rosbags, check_metadata
from crossspec_ros.recordings.bag_budget import (
    Budget,
    ProcessorTime,
    Spent,
    check_names,
    drawn,
    shared,
    spent_by_events,
)
from crossspec_ros.recordings.ros1 import Definitions
from crossspec_ros.recordings.ros1_reader import Ros1Reader
from crossspec_ros.recordings.unpacking import TooLarge, check_solid
from crossspec_ros.yaml_files import TooMuchYaml
from rosbags import rosbag1, rosbag2

bound_rosbags()

ROS1_SUFFIXES = (".bag", ".active")
"""A recorder that was killed leaves the second."""
_MANY_FILES, _MOST_FILES = 100, 10_000
"""From how many files of a bag on this process may open more, and how many at most."""
_ROS2_SUFFIXES = (".mcap", ".db3", ".mcap.zstd", ".db3.zstd")


class TopicKey(NamedTuple):
    """A topic's name and its type, as in `sensor_msgs/msg/Image`: two types may share a name."""

    topic: str
    type: str


class StoredMessage(NamedTuple):
    """One message of a bag: where it belongs, the time it was recorded, its CDR bytes."""

    topic: str
    type: str
    recorded_ns: int
    data: bytes


def storage_files(path: Path) -> list[Path]:
    """The files of a bag that hold messages, in the order of recording; empty when `path` is no bag."""
    if path.is_file():
        return [path] if path.name.endswith((*_ROS2_SUFFIXES, *ROS1_SUFFIXES)) else []
    found = [file for file in path.glob("*") if file.name.endswith(_ROS2_SUFFIXES)]
    # bag_10 comes after bag_9.
    return sorted(found, key=lambda file: (len(file.name), file.name))


class BagReader:
    """An open bag. Any exception that it raises, here or later, means damage: storage libraries promise none.
    InputError means that it is refused, because it would take absurdly much memory or time.

    `time` is what it may take of the processor, which other readers of the bag may share.
    `topics` counts the messages of each topic and `promised` all, by the bag's index. `losses` says what of
    the bag cannot be read, `remarks` what else is wrong with it, a sentence each.
    """

    def __init__(self, path: Path, time: ProcessorTime | None = None) -> None:
        self.losses: list[str] = []
        self.remarks: list[str] = []
        self.topics: Counter[TopicKey] = Counter()
        self._to_cdr: dict[tuple[int, int], Callable[[bytes], bytes]] = {}
        self._stack = ExitStack()
        self._path = path
        self._stored = sum(file.stat().st_size for file in storage_files(path))
        self.time = time or ProcessorTime(self._stored)
        self._budget = Budget(self._stored, self.time)
        try:
            with self._refusing(), shared(self._budget):
                self._readers = self._open(path)
                for reader in self._readers:
                    for connection in reader.connections:
                        check_names(*_key(connection))
            self.promised = sum(reader.message_count for reader in self._readers)
            definitions = Definitions()
            for index, reader in enumerate(self._readers):
                for connection in reader.connections:
                    self.topics[_key(connection)] += connection.msgcount
                    if isinstance(reader, rosbag1.Reader):
                        with self._refusing():
                            self._to_cdr[index, connection.id] = self._converter(connection, definitions)
        except BaseException:
            self.close()
            raise

    def _open(self, path: Path) -> Sequence[rosbag1.Reader | rosbag2.Reader]:
        # metadata.yaml may name any of them.
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            if file.exists() and not file.is_dir():
                check_solid(file)
        files = storage_files(path)
        _let_open(len(files))
        for file in files:
            self.losses += _unread(file)
        if path.suffix in ROS1_SUFFIXES:
            return [self._stack.enter_context(Ros1Reader(path))]
        if path.is_file():
            return [self._stack.enter_context(rosbag2.Reader(path))]
        try:
            check_metadata(path / "metadata.yaml")
            return [self._stack.enter_context(rosbag2.Reader(path))]
        except (rosbag2.ReaderError, FileNotFoundError, TooMuchYaml) as error:
            files = _files_of_one_bag(path)
            if not files:
                raise
            opened = [self._stack.enter_context(rosbag2.Reader(file)) for file in files]
            self.remarks.append(
                f"metadata.yaml cannot be used ({one_line(error)}), so the files beside it are read as they "
                f"are: `ros2 bag reindex` writes a new one"
            )
            return opened

    def _converter(self, connection: Connection, definitions: Definitions) -> Callable[[bytes], bytes]:
        try:
            return definitions.to_cdr(*_key(connection), connection.msgdef.data, connection.digest)
        except InputError as error:
            self.remarks.append(str(error))
            return lambda raw: b""

    def close(self) -> None:
        """Let go of the files."""
        # Where metadata.yaml has a text in place of a list, rosbags cannot close what it has opened.
        with suppress(AttributeError):
            self._stack.close()

    @property
    def end_ns(self) -> int:
        """Just after the time when the last message was recorded."""
        return max(reader.end_time for reader in self._readers)

    @property
    def compression(self) -> str | None:
        """What a rosbag2 compresses with zstd, "file" or "message", where it does."""
        first = self._readers[0]
        return first.compression_mode if isinstance(first, rosbag2.Reader) else None

    def messages(self, key: TopicKey | None = None, since_ns: int | None = None) -> Iterator[StoredMessage]:
        """The messages of a topic, or of all, in the order of recording; from a time of recording on."""
        spent, of_events = Spent(self._stored), spent_by_events(self._stored)
        self._budget.begin()
        for index, reader in enumerate(self._readers):
            wanted = [each for each in reader.connections if key in (None, _key(each))]
            # To the reader, none means all.
            if not wanted:
                continue
            with self._refusing():
                stored = drawn(reader.messages(wanted, start=since_ns), self._budget)
                for connection, recorded_ns, data in stored:
                    # Of a number, bytes() would make as many zeros.
                    size = memoryview(data).nbytes
                    spent.add(size)
                    if connection.msgtype in EVENT_TYPES:
                        of_events.add(size)
                    convert = self._to_cdr.get((index, connection.id), bytes)
                    yield StoredMessage(*_key(connection), recorded_ns, convert(data))

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except TooLarge as error:
            raise InputError(f"the bag '{self._path}' {error}") from None


def _let_open(files: int) -> None:
    """Let this process open so many files more, as far as it may: the usual bound is 1,024, and a
    recorder that begins a file each minute goes beyond it."""
    bound, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(bound + files, _MOST_FILES, _MOST_FILES if most == resource.RLIM_INFINITY else most)
    if files > _MANY_FILES and bound != resource.RLIM_INFINITY and wanted > bound:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _key(connection: Connection) -> TopicKey:
    return TopicKey(connection.topic, connection.msgtype)


def _files_of_one_bag(folder: Path) -> list[Path]:
    """The files of a folder that need no unpacking; they must be numbered as a recorder numbers them."""
    files = [file for file in storage_files(folder) if file.suffix in (".mcap", ".db3")]
    if len({re.sub(r"_\d+$", "", file.stem) for file in files}) > 1:
        raise InputError(
            f"'{folder}' has files of several bags and no metadata.yaml that fits them: give one of them, "
            f"such as '{files[0]}'"
        )
    return files


def _unread(file: Path) -> Iterator[str]:
    """What the reader of sqlite3 passes over without a word."""
    if file.suffix != ".db3":
        return
    with file.open("rb") as stream:
        head = stream.read(100)
    if len(head) == 100:
        page, written, pages, valid = struct.unpack(">16xH6xII60xI4x", head)
        short = pages * (65536 if page == 1 else page) - file.stat().st_size
        if written == valid and short > 0:
            yield f"{file.name} is {short} bytes too short, so that events or images at its end are missing"
    journal = file.with_name(f"{file.name}-wal")
    if journal.exists() and journal.stat().st_size:
        yield (
            f"{journal.name} holds messages that are not in {file.name}, as when a recorder was killed: "
            f"run `sqlite3 {file.name} 'PRAGMA wal_checkpoint'` beside it"
        )
