"""Bags of ROS 2 (sqlite3 or mcap) and of ROS 1 as recordings, read without ROS; rosbag2 is written too."""

from __future__ import annotations

import re
import shutil
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import rosbags.interfaces as interfaces
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.events.cdr import (
    DVS_EVENTS,
    EVENT_PACKET,
    EVENT_TYPES,
    IMAGE_TYPES,
    RecordedMessage,
    is_recorded_end_mark,
    stamp_ns,
    typestore,
)
from crossspec_ros.events.dvs import is_dvs_end_mark
from crossspec_ros.files import rename_folder
from crossspec_ros.recordings.bag_storage import BagStorage, StoredMessage, Topic, open_storage, zstd
from crossspec_ros.recordings.options import DEFAULT_OPTIONS, ReadOptions
from crossspec_ros.recordings.source import FileRecording
from crossspec_ros.recordings.topics import choose, describe_unread_images, is_unread_images

_PACKED = (".zstd", ".zst")
_SUFFIXES = tuple(f"{storage}{packed}" for storage in (".mcap", ".db3") for packed in ("", *_PACKED))
_PART = re.compile(r"_(\d+)(?=\.\w+$)")
"""Number of a file of a split bag."""
_RECENT = 8
"""Messages of a topic among which a repeated one is looked for: a second publisher may be late."""
_RELIABLE, _LAST = interfaces.QosReliability.RELIABLE, interfaces.QosHistory.KEEP_LAST
_KEPT, _ALIVE = interfaces.QosDurability.TRANSIENT_LOCAL, interfaces.QosLiveliness.AUTOMATIC
_UNLIMITED = interfaces.QosTime(0, 0)
_LATCHED = interfaces.Qos(_LAST, 1, _RELIABLE, _KEPT, _UNLIMITED, _UNLIMITED, _ALIVE, _UNLIMITED, False)
_REPAIRS = {".bag": "`rosbag reindex`", ".db3": "`sqlite3 .recover`", ".mcap": "`mcap recover`"}


def storage_files(path: Path) -> list[Path]:
    """Return the files of a bag that hold messages, in the order of recording; empty if `path` is no bag."""
    if path.is_file():
        return [path] if path.name.endswith((*_SUFFIXES, ".bag")) else []
    # macOS adds `._x.mcap` to a copy of x.mcap.
    names = {file.name for file in path.glob("[!.]*") if file.name.endswith(_SUFFIXES)}
    # `unzstd` keeps the packed file.
    found = [path / name for name in names if name == _unpacked(name) or _unpacked(name) not in names]
    # bag_10 follows bag_9.
    return sorted(found, key=lambda file: (len(_unpacked(file.name)), file.name))


def _unpacked(name: str) -> str:
    return name.rpartition(".")[0] if name.endswith(_PACKED) else name


def _find_holes(files: list[Path]) -> str:
    """Return the neighbours of missing numbers, or an empty string."""
    numbers = [_PART.search(_unpacked(file.name)) for file in files]
    pairs = pairwise(
        (int(number[1]), file.name) for number, file in zip(numbers, files, strict=True) if number
    )
    return ", ".join(f"between {first} and {second}" for (a, first), (b, second) in pairs if b - a > 1)


class BagFiles:
    """The open files of a bag: all that lie in its folder, in the order of their numbers.

    `remarks` has a sentence if numbers are missing between them. `counts` has the number of messages of each
    topic. Raises InputError where no file can be read, and for files of several bags.
    """

    def __init__(self, path: Path) -> None:
        self.counts: Counter[Topic] = Counter()
        self.remarks: list[str] = []
        self._damage: dict[str, None] = {}
        self._repeated: Counter[Topic] = Counter()
        self._storages: list[tuple[Path, BagStorage]] = []
        self._stack = ExitStack()
        files = storage_files(path)
        kind = Path(_unpacked(files[0].name)).suffix if files else ".mcap"
        self.format = {".bag": "ROS 1 bag", ".db3": "rosbag2, sqlite3"}.get(kind, "rosbag2, mcap")
        self.format += ", file compressed" * any(file.name.endswith(_PACKED) for file in files)
        if len({_PART.sub("_", _unpacked(file.name)) for file in files}) > 1:
            raise InputError(f"'{path}' has files of several bags: give one of them, such as '{files[0]}'")
        if holes := _find_holes(files):
            self.remarks.append(f"files of '{path}' are missing {holes}: copy the bag again")
        for file in files:
            self._open(file)
        if not self._storages:
            raise InputError(
                f"the bag '{path}' is damaged and no message of it can be read: "
                f"{'; '.join(self._damage) or 'it has no file'}"
            )

    def close(self) -> None:
        """Remove unpacked files."""
        self._stack.close()

    def first(self, topic: Topic) -> StoredMessage | None:
        """Return the first message of a topic."""
        return next((storage.first(topic) for _, storage in self._storages if storage.counts[topic]), None)

    def messages(self, topics: Collection[Topic]) -> Iterator[StoredMessage]:
        """Yield the messages of these topics in log order; damage ends a file."""
        for topic in topics:
            del self._repeated[topic]
        for file, storage in self._storages:
            recent = {topic: deque[bytes](maxlen=_RECENT) for topic in topics}
            read: Counter[Topic] = Counter()
            with self._losing_rest(file):
                for message in storage.messages(topics):
                    topic = message.topic
                    read[topic] += 1
                    if topic.type in EVENT_TYPES or topic.type in IMAGE_TYPES:
                        # A bag of two recorders, two publishers or a bridge has each message twice.
                        if message.data in recent[topic]:
                            self._repeated[topic] += 1
                            continue
                        recent[topic].append(message.data)
                    yield message
                for topic in topics:
                    if read[topic] < storage.counts[topic]:
                        raise ValueError(
                            f"{topic.name} has {read[topic]} of {storage.counts[topic]} messages"
                        )

    def losses(self) -> list[str]:
        """Return a sentence for each part that could not be read so far, and for repeated messages."""
        return [*self._damage] + [
            f"{count} messages of {topic.name} only repeat earlier ones and are left out: run one recorder, "
            f"let a single node publish, and no bridge work in both directions"
            for topic, count in sorted(self._repeated.items())
        ]

    @contextmanager
    def _losing_rest(self, file: Path) -> Iterator[None]:
        """Make a loss of damage; the errors of a full memory or a failing disk remain."""
        try:
            yield
        # The storage libraries promise no exception for damage. Those of bz2 are OSErrors without a number.
        except Exception as error:
            if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno):
                raise
            name = _unpacked(file.name)
            repair = "`unzstd` and then " * (name != file.name) + _REPAIRS[Path(name).suffix]
            self._damage.setdefault(
                f"{file.name} is cut or damaged ({one_line(error)}), and its rest is not read: copy it "
                f"again, or repair it with {repair}"
            )

    def _open(self, file: Path) -> None:
        source = file
        if file.name.endswith(_PACKED):
            source = Path(self._stack.enter_context(TemporaryDirectory()), _unpacked(file.name))
            with self._losing_rest(file), zstd.open(file) as packed, source.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked)
        with self._losing_rest(file):
            storage = open_storage(source)
            self._storages.append((file, storage))
            self.counts.update(storage.counts)


class BagRecording(FileRecording):
    """A bag as a recording; `topics.choose` chooses its topics, each of which is read in log order.

    Raises InputError when the bag is unreadable, has nothing to play, or lacks a requested topic.
    """

    def __init__(self, path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> None:
        super().__init__(path)
        self._files = BagFiles(path)
        self.format = self._files.format
        choice = choose(self._files.counts, self._files.first, options, path)
        if choice is None:
            topics = sorted(self._files.counts)
            named = ", ".join(f"{topic.name} ({topic.type})" for topic in topics) or "nothing"
            unread = [describe_unread_images(topic) for topic in topics if is_unread_images(topic)]
            raise InputError(
                f"the bag '{path}' has no events to play: record a topic of type {EVENT_PACKET} or "
                f"{DVS_EVENTS} as well as {'; '.join([named, *unread])}"
            )
        events, image = choice.events, choice.image
        if (needed := events or image) and needed.fault:
            raise InputError(f"{needed.topic.name} of '{path}' cannot be read: {needed.fault}")
        self.remarks += [*self._files.remarks, *choice.remarks()]
        if events:
            self.event_topic, self.event_type = events.topic.name, EVENT_TYPES[events.topic.type]
            self._event_messages = partial(self._stream, "events", events.topic)
        if image:
            self.image_topic, self.image_type = image.topic
            self._image_messages = partial(self._stream, "image", image.topic)

    def close(self) -> None:
        self._files.close()

    def _pass(self) -> Iterator[RecordedMessage]:
        yield from super()._pass()
        self.losses += self._files.losses()

    def _stream(self, kind: str, topic: Topic) -> Iterator[RecordedMessage]:
        type_name, torn = EVENT_TYPES.get(topic.type, topic.type), 0
        is_mark = is_dvs_end_mark if type_name == DVS_EVENTS else is_recorded_end_mark
        for message in self._files.messages([topic]):
            if kind == "events" and is_mark(message.data):
                continue  # else a recorded replay would be longer than its recording
            try:
                yield RecordedMessage(stamp_ns(message.data), kind, type_name, message.data)
            except InputError:
                torn += 1
        if torn:
            self.losses.append(f"{torn} messages of {topic.name} are torn")


def check_new(bag: Path) -> None:
    """Raise InputError if a bag of this name exists, or cannot be written."""
    if bag.exists():
        raise InputError(f"'{bag}' exists already: remove it first or choose another name for the bag")
    with _faults_named(bag):
        bag.mkdir()
        bag.rmdir()


@contextmanager
def new_bag(bag: Path) -> Iterator[Path]:
    """Yield a path to write a bag to, which gets its name once the block has ended well."""
    check_new(bag)
    # The files of a bag are named after its folder.
    with _faults_named(bag), TemporaryDirectory(prefix=f".{bag.name}.", dir=bag.parent) as scratch:
        yield Path(scratch, bag.name)
        rename_folder(Path(scratch, bag.name), bag)


@contextmanager
def _faults_named(bag: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"'{bag}' cannot be written ({error.strerror or error}): name a bag in an existing "
            f"folder with room and the right to write, and a readable source"
        ) from error


@contextmanager
def write_bag(path: Path, latched: Collection[str] = ()) -> Iterator[Callable[[str, RecordedMessage], None]]:
    """Write a rosbag2 (mcap, chunks compressed with zstd) by calling what this yields with topic and message.

    `path` must not exist. Subscribers that come later get the last message of `latched` topics. Raises
    InputError for a message with a stamp before 1970.
    """
    # Version 8 is the newest metadata that every supported ROS release reads.
    writer = Writer(path, version=8, storage_plugin=StoragePlugin.MCAP)
    writer.set_compression(CompressionMode.STORAGE, CompressionFormat.ZSTD)
    connections: dict[str, interfaces.Connection] = {}

    def write(topic: str, message: RecordedMessage) -> None:
        if message.stamp_ns < 0:
            raise InputError(
                f"a message on {topic} is stamped {message.stamp_ns} ns, before 1970, which no bag can hold: "
                f"check the clock of the recording's cameras"
            )
        if topic not in connections:
            qos = [_LATCHED] if topic in latched else []
            connections[topic] = writer.add_connection(
                topic, message.type, typestore=typestore(), offered_qos_profiles=qos
            )
        writer.write(connections[topic], message.stamp_ns, message.data)

    with writer:
        yield write
