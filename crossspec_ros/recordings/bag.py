"""Recordings in rosbag2 (sqlite3 or mcap), read and written without ROS."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rosbags.interfaces import Connection
from rosbags.rosbag2 import CompressionFormat, CompressionMode, Reader, StoragePlugin, Writer

from crossspec_ros.errors import InputError
from crossspec_ros.events.decoder import make_decoder
from crossspec_ros.events.messages import (
    COMPRESSED_IMAGE,
    DVS_EVENTS,
    EVENT_PACKET,
    IMAGE,
    LEGACY_EVENT_PACKET,
    RecordedMessage,
    stamp_ns,
    typestore,
)
from crossspec_ros.events.stamps import merged

_EVENT_TYPES = {EVENT_PACKET: EVENT_PACKET, LEGACY_EVENT_PACKET: EVENT_PACKET, DVS_EVENTS: DVS_EVENTS}
_IMAGE_TYPES = {IMAGE: IMAGE, COMPRESSED_IMAGE: COMPRESSED_IMAGE}
# Some drivers publish their rendered events there, which are no view of the scene.
_RENDERED_EVENTS = "/event_camera/image_raw"
# A bag is in the order of recording; the latest stamp is looked for among its last two seconds.
_TAIL_NS = 2_000_000_000


class BagRecording:
    """A rosbag2 as a Recording; of several topics of a kind the one with the most messages is played.

    Raises InputError when the bag is damaged, has no event topic or an unknown event encoding.
    """

    format = "rosbag2"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.losses: list[str] = []
        self._stack = ExitStack()
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        with self._name_damage():
            # A reader a stream: stamps and times of recording may differ in their order, and readers seek.
            readers = [self._stack.enter_context(Reader(self.path)) for _ in range(2)]
            events = _largest(readers[0], _EVENT_TYPES)
            image = _largest(readers[1], _IMAGE_TYPES)
            topics = ", ".join(f"{topic.topic} ({topic.msgtype})" for topic in readers[0].connections)
        if events is None:
            raise InputError(
                f"the bag '{self.path}' has no events to play: record a topic of type {EVENT_PACKET} or "
                f"{DVS_EVENTS} beside what it has, which is {topics or 'nothing'}"
            )
        self.event_topic, self.event_type = events.topic, _EVENT_TYPES[events.msgtype]
        self.image_topic = image.topic if image else None
        self.image_type = image.msgtype if image else None
        self._streams = [(readers[0], events, "events", self.event_type)]
        if image:
            self._streams.append((readers[1], image, "image", image.msgtype))
        with self._name_damage():
            self.start_ns, self.end_ns = self._span()
        self._check_encoding()

    def close(self) -> None:
        self._stack.close()

    def messages(self) -> Iterator[RecordedMessage]:
        streams = [self._stream(*stream) for stream in self._streams]
        with self._name_damage():
            yield from merged(*streams)

    @staticmethod
    def _stream(
        reader: Reader, connection: Connection, kind: str, type_name: str, since_ns: int | None = None
    ) -> Iterator[RecordedMessage]:
        for _, _, data in reader.messages([connection], start=since_ns):
            yield RecordedMessage(stamp_ns(data), kind, type_name, data)

    def _span(self) -> tuple[int, int]:
        firsts = _first(message for message in self.messages() if not message.stray)
        for since_ns in (self._streams[0][0].end_time - _TAIL_NS, None):
            tails = merged(*(self._stream(*stream, since_ns=since_ns) for stream in self._streams))
            if firsts and (lasts := [message.stamp_ns for message in tails if not message.stray]):
                return firsts[0].stamp_ns, max(lasts)
        raise ValueError("its index promises messages that are not there")

    def _check_encoding(self) -> None:
        if self.event_type == EVENT_PACKET:
            with self._name_damage():
                (first,) = _first(self._stream(*self._streams[0]))
                packet: Any = typestore().deserialize_cdr(first.data, EVENT_PACKET)
            make_decoder(packet.encoding, packet.width, packet.height)

    @contextmanager
    def _name_damage(self) -> Iterator[None]:
        try:
            yield
        except InputError:
            raise
        # The storage libraries promise no exception for a damaged file: struct.error, TypeError, OSError,
        # database and decompression errors were seen.
        except Exception as error:
            detail = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            raise InputError(
                f"the bag '{self.path}' is damaged ({detail}): copy it again, or repair it with "
                f"`mcap recover` or `sqlite3 .recover`"
            ) from error


def _largest(reader: Reader, types: Mapping[str, str]) -> Connection | None:
    candidates = [
        topic
        for topic in reader.connections
        if topic.msgtype in types and topic.msgcount and not topic.topic.startswith(_RENDERED_EVENTS)
    ]
    return max(candidates, key=lambda topic: topic.msgcount, default=None)


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
