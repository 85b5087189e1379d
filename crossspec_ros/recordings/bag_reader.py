"""One bag of ROS 2 (sqlite3 or mcap) or of ROS 1, whole or damaged: its topics, and its messages as CDR."""

from __future__ import annotations

import re
import resource
import shutil
import sqlite3
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.files import check_regular
from crossspec_ros.recordings.mcap import MAGIC, McapReader, salvage_mcap
from crossspec_ros.recordings.ros1 import Definitions, Ros1Reader, salvage_ros1
from crossspec_ros.recordings.sqlite_bag import SqliteReader, salvage_sqlite
from crossspec_ros.recordings.storage import (
    ZSTD_MAGIC,
    Channel,
    Losses,
    StoredMessage,
    TopicKey,
    unpack,
    unpack_cut,
    zstd,
)
from crossspec_ros.yaml_files import read_yaml

ROS1_SUFFIXES = (".bag", ".active")
"""A recorder that was killed leaves the second."""
PACKED_SUFFIXES = (".zstd", ".zst")
ROS2_SUFFIXES = tuple(
    f"{storage}{packed}" for storage in (".mcap", ".db3") for packed in ("", *PACKED_SUFFIXES)
)
_MANY_FILES = 100
"""Files of a bag from which on this process may open more."""
_MOST_FILES = 10_000


def storage_files(path: Path) -> list[Path]:
    """The files of a bag that hold messages, in the order of recording; empty when `path` is no bag."""
    if path.is_file():
        return [path] if path.name.endswith((*ROS2_SUFFIXES, *ROS1_SUFFIXES)) else []
    names = {file.name for file in path.glob("*") if file.name.endswith(ROS2_SUFFIXES)}
    # `unzstd` keeps what it unpacks.
    found = [path / name for name in names if not (_is_packed(name) and _unpacked_name(name) in names)]
    # bag_10 comes after bag_9.
    return sorted(found, key=lambda file: (len(file.name), file.name))


def _is_packed(name: str) -> bool:
    return name.endswith(PACKED_SUFFIXES)


def _unpacked_name(name: str) -> str:
    return name.rpartition(".")[0] if _is_packed(name) else name


class _Storage(Protocol):
    """Reader of one open file, as BagReader asks for it."""

    channels: list[Channel]
    message_count: int
    end_time: int
    """Just after the time when the last message was recorded."""

    def messages(
        self, wanted: Collection[Channel], since_ns: int | None
    ) -> Iterator[tuple[Channel, int, bytes]]: ...

    def close(self) -> None: ...


class _Metadata(NamedTuple):
    """Contents of metadata.yaml of a bag."""

    files: list[str]
    topics: list[TopicKey]
    messages: int
    compression: str


class BagReader:
    """An open bag. Any exception that it raises, here or later, means damage: storage libraries promise none.

    `topics` counts the messages of each topic and `promised` all, by the bag's index. `losses` says what of
    the bag cannot be read, `remarks` what else is wrong with it, a sentence each. `compression` says what is
    packed, "file" or "message", where metadata.yaml or the files tell it.
    """

    def __init__(self, path: Path) -> None:
        self.losses: list[str] = []
        self.remarks: list[str] = []
        self.topics: Counter[TopicKey] = Counter()
        self.compression = ""
        self._to_cdr: dict[tuple[int, int], Callable[[bytes], bytes]] = {}
        self._stack = ExitStack()
        self.promised = 0
        self._readers: list[_Storage] = []
        try:
            self._open(path)
            definitions = Definitions()
            for index, reader in enumerate(self._readers):
                for channel in reader.channels:
                    self.topics[channel.key] += channel.messages
                    self._to_cdr[index, channel.number] = _converter(channel, definitions, self.remarks)
        except BaseException:
            self.close()
            raise
        self.promised = self.promised or sum(reader.message_count for reader in self._readers)

    def _open(self, path: Path) -> None:
        # metadata.yaml may name any of them.
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            if file.exists() and not file.is_dir():
                check_regular(file)
        files = storage_files(path)
        _let_open(len(files))
        for file in files:
            self.losses += _unread(file)
        for file in self._named(path, files) if path.is_dir() else files:
            self._readers.append(self._stack.enter_context(closing(self._reader(file))))

    def _named(self, folder: Path, files: list[Path]) -> list[Path]:
        """The files that metadata.yaml names, or where it cannot be used, those of the folder."""
        try:
            told = _metadata(folder)
        except ValueError as error:
            if not files:
                raise
            _check_one_bag(folder, files)
            self.losses += _gaps(files)
            helps = "`ros2 bag reindex` writes a new one"
            if any(_is_packed(file.name) for file in files):
                helps += ", once `unzstd --rm` has unpacked them"
            self.remarks.append(
                f"metadata.yaml cannot be used ({one_line(error)}), so the files beside it are read as they "
                f"are: {helps}"
            )
            return files
        known = {_unpacked_name(name) for name in told.files}
        if more := [file.name for file in files if _unpacked_name(file.name) not in known]:
            last = max(map(_number, told.files))
            follow = [name for name in more if _number(name) > last]
            told_names = ", ".join(more[:5]) + " and others" * (len(more) > 5)
            (self.losses if follow else self.remarks).append(
                f"metadata.yaml does not name {told_names}, so these are not played: where a recorder was "
                f"killed, `ros2 bag reindex` writes a new one, and else give each by itself"
            )
        # Those without a message are in no file.
        self.topics.update(dict.fromkeys(told.topics, 0))
        self.promised, self.compression = told.messages, told.compression
        return [folder / name for name in told.files]

    def _reader(self, file: Path) -> _Storage:
        if file.suffix in ROS1_SUFFIXES:
            return Ros1Reader(file)
        with file.open("rb") as stream:
            head = stream.read(16)
            if head.startswith(ZSTD_MAGIC):
                self.compression = "file"
                unpacked = Path(self._stack.enter_context(TemporaryDirectory()), "unpacked")
                _unpack_file(file, unpacked)
                return self._reader(unpacked)
        if head.startswith(MAGIC) or ".mcap" in file.suffixes:
            return McapReader(file)
        return SqliteReader(file)

    def close(self) -> None:
        """Let go of the files."""
        self._stack.close()

    @property
    def end_ns(self) -> int:
        """Just after the time when the last message was recorded."""
        return max(reader.end_time for reader in self._readers)

    def messages(self, key: TopicKey | None = None, since_ns: int | None = None) -> Iterator[StoredMessage]:
        """The messages of a topic, or of all, in the order of recording; from a time of recording on."""
        for index, reader in enumerate(self._readers):
            wanted = [channel for channel in reader.channels if key in (None, channel.key)]
            # To a reader of ROS 1, none means all.
            for channel, recorded_ns, data in reader.messages(wanted, since_ns) if wanted else ():
                yield StoredMessage(*channel.key, recorded_ns, self._to_cdr[index, channel.number](data))


def _converter(
    channel: Channel, definitions: Definitions, told: list[str] | Losses
) -> Callable[[bytes], bytes]:
    """The function that makes CDR of a channel's messages; why it makes nothing of them is `told`."""
    try:
        if channel.encoding == "ros1":
            return definitions.to_cdr(channel)
        definitions.check(channel)
        return _unpacked
    except InputError as error:
        told.append(str(error))
        return lambda raw: b""


def _unpacked(data: bytes) -> bytes:
    return unpack(data, zstd.ZstdDecompressor) if data.startswith(ZSTD_MAGIC) else data


def salvage(path: Path, losses: Losses) -> Iterator[StoredMessage]:
    """All messages of a damaged bag that can be read; what cannot is told in `losses`, a phrase each.

    A bag whose recorder was killed has no index and ends in the middle of a message; one from a bad disk has
    holes.
    """
    for file in storage_files(path):
        if not file.exists():
            losses.append(f"{file.name} is a link to nothing")
            continue
        with TemporaryDirectory() as folder:
            storage = file
            if _is_packed(file.name):
                storage = Path(folder) / file.stem
                try:
                    _unpack_file(file, storage)
                except (OSError, EOFError, zstd.ZstdError) as error:
                    losses.append(f"{file.name} cannot be unpacked to its end ({error})")
            try:
                yield from _salvaged(storage, losses)
            except (OSError, sqlite3.Error) as error:
                losses.append(f"{file.name} cannot be read ({error})")


def _salvaged(file: Path, losses: Losses) -> Iterator[StoredMessage]:
    read = salvage_sqlite if file.suffix == ".db3" else salvage_mcap
    if file.suffix in ROS1_SUFFIXES:
        read = salvage_ros1
    definitions, to_cdr = Definitions(), dict[Channel, Callable[[bytes], bytes]]()
    for channel, recorded_ns, data in read(file, losses):
        if channel not in to_cdr:
            to_cdr[channel] = _damaged_converter(channel, definitions, losses)
        yield StoredMessage(*channel.key, recorded_ns, to_cdr[channel](data))


def _damaged_converter(
    channel: Channel, definitions: Definitions, losses: Losses
) -> Callable[[bytes], bytes]:
    try:
        convert = _converter(channel, definitions, losses)
    # rosbags promises no exception for definitions that are damaged.
    except Exception as error:
        losses.append(one_line(error))
        return lambda raw: b""
    return convert if channel.encoding == "ros1" else _unpacked_cut


def _unpacked_cut(data: bytes) -> bytes:
    with suppress(zstd.ZstdError):
        return unpack_cut(data, zstd.ZstdDecompressor) if data.startswith(ZSTD_MAGIC) else data
    return data


def _unpack_file(source: Path, target: Path) -> None:
    with zstd.open(source) as packed, target.open("wb") as unpacked:
        shutil.copyfileobj(packed, unpacked)


def _metadata(folder: Path) -> _Metadata:
    """Contents of metadata.yaml; raises ValueError where it cannot be used."""
    try:
        told: Any = read_yaml(folder / "metadata.yaml")["rosbag2_bagfile_information"]
        files = [PurePath(name).name for name in told["relative_file_paths"]]
        topics = [each["topic_metadata"] for each in told["topics_with_message_count"]]
        keys = [TopicKey(str(topic["name"]), str(topic["type"])) for topic in topics]
        messages = int(told["message_count"])
        compression = str(told.get("compression_mode") or "").lower()
    except FileNotFoundError:
        raise ValueError("it does not exist") from None
    except (TypeError, LookupError) as error:
        raise ValueError(f"it is none of a bag: {type(error).__name__}: {error}") from None
    # As often as it is named, it is unpacked.
    if repeated := [name for name, times in Counter(files).items() if times > 1]:
        raise ValueError(f"it names the file {repeated[0]!r} more than once")
    if missing := [name for name in files if not (folder / name).is_file()]:
        raise ValueError(f"it names the file {missing[0]!r}, which is missing")
    if not files:
        raise ValueError("it names no file")
    return _Metadata(files, keys, messages, compression.replace("none", ""))


def _let_open(files: int) -> None:
    """Let this process open so many files more, as far as it may: the usual bound is 1,024, and a
    recorder that begins a file each minute goes beyond it."""
    bound, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(bound + files, _MOST_FILES, _MOST_FILES if most == resource.RLIM_INFINITY else most)
    if files > _MANY_FILES and bound != resource.RLIM_INFINITY and wanted > bound:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _check_one_bag(folder: Path, files: Sequence[Path]) -> None:
    """Raise InputError where files are not numbered as a recorder numbers those of one bag."""
    if len({re.sub(r"_\d+$", "", file.name.partition(".")[0]) for file in files}) > 1:
        raise InputError(
            f"'{folder}' has files of several bags and no metadata.yaml that fits them: give one of them, "
            f"such as '{files[0]}'"
        )


def _number(name: str) -> int:
    """The number that a recorder gave a file; -1 for none."""
    match = re.search(r"_(\d{1,4})$", name.partition(".")[0])
    return int(match[1]) if match else -1


def _gaps(files: Sequence[Path]) -> Iterator[str]:
    """Sentence about numbers that are missing between those of a bag's files."""
    numbers = {_number(file.name) for file in files}
    # A recorder begins at 0; other numbers may be dates.
    missing = sorted({*range(max(numbers))} - numbers) if 0 in numbers else []
    if missing:
        told = ", ".join(map(str, missing[:5])) + " and others" * (len(missing) > 5)
        yield f"the files with the numbers {told} are missing: copy them as well"


def _unread(file: Path) -> Iterator[str]:
    """Sentences about what the reader of sqlite3 passes over without a word."""
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
