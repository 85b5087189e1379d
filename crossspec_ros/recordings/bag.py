"""Recordings in bags of ROS 2 (sqlite3 or mcap) and of ROS 1, read without ROS; rosbag2 is written too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from rosbags.interfaces import Connection
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.events.cdr import (
    DVS_EVENTS,
    EVENT_PACKET,
    EVENT_TYPES,
    RecordedMessage,
    stamp_ns,
    typestore,
)
from crossspec_ros.events.sample_depth import SampleDepth, moved_up
from crossspec_ros.events.stamps import merged
from crossspec_ros.recordings.bag_reader import (
    PACKED_SUFFIXES,
    ROS1_SUFFIXES,
    BagReader,
    storage_files,
)
from crossspec_ros.recordings.choice import choose, has_images, unread_images
from crossspec_ros.recordings.options import DEFAULT_OPTIONS, ReadOptions
from crossspec_ros.recordings.storage import StoredMessage, TopicKey

_TAIL_NS = 2_000_000_000
"""End of a bag, which is in the order of recording, in which the latest stamp is looked for."""


class BagRecording:
    """A bag of ROS 2 or ROS 1 as a Recording; choice.py says which of its topics are played.

    Raises InputError when the bag is damaged, has nothing to play, an unknown type or encoding of events, or
    none of the topics that are asked for.
    """

    def __init__(self, path: Path, asked: ReadOptions = DEFAULT_OPTIONS) -> None:
        self.path = path
        self.format = "ROS 1 bag" if path.suffix in ROS1_SUFFIXES else "rosbag2"
        self.losses: list[str] = []
        self._torn = Counter[str]()
        self._read = Counter[TopicKey]()
        self._stack = ExitStack()
        try:
            self._open(asked)
        except BaseException:
            self.close()
            raise

    def _open(self, asked: ReadOptions) -> None:
        with self._name_damage():
            # A reader a stream: stamps and times of recording may differ in their order, and readers seek.
            first = self._stack.enter_context(closing(BagReader(self.path)))
            readers = [first, self._stack.enter_context(closing(BagReader(self.path)))]
            choice = choose(readers[0], asked, self.path)
        if choice is None:
            topics = ", ".join(f"{topic} ({type_name})" for topic, type_name in readers[0].topics)
            unread = "; ".join(unread_images(key) for key in readers[0].topics if has_images(key.type))
            raise InputError(
                f"the bag '{self.path}' has no events to play: record a topic of type {EVENT_PACKET} or "
                f"{DVS_EVENTS} beside what it has, which is {topics or 'nothing'}"
                f"{unread and f'; {unread}'}"
            )
        events, image = choice.events, choice.image
        depth = self._depth(readers[1], image.key) if image and not image.fault else SampleDepth()
        self._shift = depth.shift
        finding = depth.finding()
        told = [f"{image.key.topic}: {finding}"] if image and finding else []
        self.remarks = [*readers[0].remarks, *choice.remarks(), *told]
        self._missing = readers[0].losses
        self.event_topic = events.key.topic if events else None
        self.event_type = EVENT_TYPES[events.key.type] if events else EVENT_PACKET
        self.image_topic = image.key.topic if image else None
        self.image_type = image.key.type if image else None
        self._streams = []
        if events:
            self._streams.append((readers[0], events.key, "events", self.event_type))
        if image:
            self._streams.append((readers[1], image.key, "image", image.key.type))
        with self._name_damage():
            self.start_ns, self.end_ns = self._span()
        kind, needed = ("events", events) if events else ("images", image)
        if needed and needed.fault:
            raise InputError(f"the {kind} of '{self.path}' cannot be read: {needed.fault}")

    def close(self) -> None:
        self._stack.close()

    def messages(self) -> Iterator[RecordedMessage]:
        self._torn.clear()
        self._read.clear()
        self.losses.clear()
        streams = [self._stream(*stream) for stream in self._streams]
        with self._name_damage():
            yield from merged(*streams)
        # Images of a folder may have told theirs in the same list.
        self.losses += [
            *self._missing,
            *(f"{count} messages of {topic} are torn" for topic, count in self._torn.items()),
            *(
                f"{key.topic} has {self._read[key]} messages of the {reader.topics[key]} in its index"
                for reader, key, *_ in self._streams
                if self._read[key] < reader.topics[key]
            ),
        ]

    def _stream(
        self, reader: BagReader, key: TopicKey, kind: str, type_name: str, since_ns: int | None = None
    ) -> Iterator[RecordedMessage]:
        for message in reader.messages(key, since_ns):
            self._read[key] += 1
            try:
                stamp = stamp_ns(message.data)
            except InputError:
                self._torn[key.topic] += 1
            else:
                data = self._moved_up(message) if kind == "image" and self._shift else message.data
                yield RecordedMessage(stamp, kind, type_name, data)

    def _depth(self, reader: BagReader, key: TopicKey) -> SampleDepth:
        depth = SampleDepth()
        with self._name_damage():
            for message in reader.messages(key):
                with suppress(Exception):  # Torn messages are told when they play.
                    if not depth.add(typestore().deserialize_cdr(message.data, key.type)):
                        break
        return depth

    def _moved_up(self, message: StoredMessage) -> bytes:
        try:
            image: Any = typestore().deserialize_cdr(message.data, message.type)
            return bytes(typestore().serialize_cdr(moved_up(image, self._shift), message.type))
        except Exception:  # rosbags promises none for damaged bytes
            return message.data

    def _span(self) -> tuple[int, int]:
        firsts = _first(message for message in self.messages() if not message.stray)
        for since_ns in (self._streams[0][0].end_ns - _TAIL_NS, None):
            tails = merged(*(self._stream(*stream, since_ns=since_ns) for stream in self._streams))
            if firsts and (lasts := [message.stamp_ns for message in tails if not message.stray]):
                return firsts[0].stamp_ns, max(lasts)
        raise ValueError("its index promises messages that are not there")

    @contextmanager
    def _name_damage(self) -> Iterator[None]:
        try:
            yield
        except (InputError, MemoryError):
            raise
        # The storage libraries promise no exception for a damaged file: struct.error, TypeError, OSError,
        # database and decompression errors were seen.
        except Exception as error:
            raise InputError(
                f"the bag '{self.path}' is damaged ({one_line(error)}): copy it again, or repair it with "
                f"{remedy(self.path)}"
            ) from error


def remedy(path: Path) -> str:
    """Command that repairs a bag."""
    if path.suffix in ROS1_SUFFIXES:
        return "`rosbag reindex`"
    is_database = any(".db3" in file.suffixes for file in storage_files(path))
    of_file = "`sqlite3 .recover`" if is_database else "`mcap recover`, of the mcap command line tool"
    if any(file.name.endswith(PACKED_SUFFIXES) for file in storage_files(path)):
        # Neither takes what is packed, nor does `ros2 bag reindex`.
        return f"`unzstd --rm` and then {of_file}"
    return f"`ros2 bag reindex` or {of_file}" if path.is_dir() else of_file


def _first(messages: Iterator[RecordedMessage]) -> list[RecordedMessage]:
    return [message for message, _ in zip(messages, range(1), strict=False)]


@contextmanager
def write_bag(path: Path) -> Iterator[Callable[[str, RecordedMessage], None]]:
    """Write a rosbag2 (mcap, chunks compressed with zstd) by calling what this yields with topic and message.

    Raises InputError when `path` exists, and for a message with a stamp before 1970.
    """
    if path.exists():
        raise InputError(f"'{path}' exists already: remove it first or choose another name for the bag")
    # Version 8 is the newest metadata that every supported ROS release reads.
    writer = Writer(path, version=8, storage_plugin=StoragePlugin.MCAP)
    writer.set_compression(CompressionMode.STORAGE, CompressionFormat.ZSTD)
    connections: dict[str, Connection] = {}

    def write(topic: str, message: RecordedMessage) -> None:
        if message.stamp_ns < 0:
            raise InputError(
                f"a message on {topic} is stamped {message.stamp_ns} ns, before 1970, which no bag can hold: "
                f"check the clock of the recording's cameras"
            )
        if topic not in connections:
            connections[topic] = writer.add_connection(topic, message.type, typestore=typestore())
        writer.write(connections[topic], message.stamp_ns, message.data)

    with writer:
        yield write
