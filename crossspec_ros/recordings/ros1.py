"""ROS 1 bags, whole or damaged: their messages as CDR, so that all that reads them knows one serialization.

https://wiki.ros.org/Bags/Format/2.0
"""

from __future__ import annotations

import io
import struct
from bz2 import BZ2Decompressor
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from lz4.frame import LZ4FrameDecompressor
from rosbags.rosbag1 import Reader
from rosbags.serde import SerdeError
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.events.cdr import DVS_EVENTS, EVENT_TYPES, IMAGE_TYPES, typestore
from crossspec_ros.recordings.storage import Channel, Decompressor, Losses, unpack_cut

_HEADER = "std_msgs/msg/Header"
_DVS_MD5 = "5e8beee5a6c107e504c2e78903c224b8"
"""Checksum of `dvs_msgs/EventArray`, and of its namesakes with the same fields."""
_KEPT_BYTES = 64 << 20
"""Bytes of unpacked chunks that a reader keeps."""
_MAGIC = b"#ROSBAG V2.0\n"
_MESSAGE, _CHUNK, _CONNECTION = b"\x02", b"\x05", b"\x07"
_DECOMPRESSORS: dict[bytes, Callable[[], Decompressor]] = {
    b"bz2": BZ2Decompressor,
    b"lz4": LZ4FrameDecompressor,
}


class _CachingReader(Reader):
    """The reader of rosbags, which keeps the chunks that it unpacked last.

    Where they were written topic after topic, the messages in their order come from them in turns.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._kept: OrderedDict[int, bytes] = OrderedDict()

    def read_chunk(self) -> Any:
        chunk = super().read_chunk()

        def unpacked(data: bytes) -> bytes:
            if chunk.datapos in self._kept:
                self._kept.move_to_end(chunk.datapos)
            else:
                self._kept[chunk.datapos] = chunk.decompressor(data)
                while len(self._kept) > 1 and sum(map(len, self._kept.values())) > _KEPT_BYTES:
                    self._kept.popitem(last=False)
            return self._kept[chunk.datapos]

        return chunk._replace(decompressor=unpacked)


class Ros1Reader:
    """An open file; raises any exception for damage."""

    def __init__(self, path: Path) -> None:
        self._reader = _CachingReader(path)
        self._reader.open()
        self.channels = [
            Channel(one.id, one.topic, one.msgtype, "ros1", str(one.msgdef.data), one.digest, one.msgcount)
            for one in self._reader.connections
        ]
        # That of rosbags goes through all chunks again for each topic.
        self.message_count = sum(sum(chunk.connection_counts.values()) for chunk in self._reader.chunk_infos)
        self.end_time = self._reader.end_time

    def close(self) -> None:
        """Let go of the file."""
        self._reader.close()

    def messages(
        self, wanted: Collection[Channel], since_ns: int | None
    ) -> Iterator[tuple[Channel, int, bytes]]:
        """The messages of these channels in the order of recording, from a time of recording on."""
        of_number = {channel.number: channel for channel in wanted}
        connections = [one for one in self._reader.connections if one.id in of_number]
        for connection, recorded_ns, data in self._reader.messages(connections, start=since_ns):
            yield of_number[connection.id], recorded_ns, data


class Definitions:
    """Converters of the messages of one bag into CDR; each definition of a type is read once."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, str], dict[str, Any]] = {}

    def to_cdr(self, channel: Channel) -> Callable[[bytes], bytes]:
        """The function that turns a topic's messages into CDR, by the definition of their type in the bag.

        A message that is torn becomes nothing, b"". Those of types that nobody reads stay as they are. Raises
        InputError when the definition is none that is known, and what rosbags raises when it cannot be read.
        Where no `md5` is told, it is that of the definition.
        """
        name, definition = channel.type, channel.definition
        if name not in (*EVENT_TYPES, *IMAGE_TYPES):
            return lambda raw: raw
        known = typestore().fielddefs
        read_as = EVENT_TYPES.get(name, name)
        # The header of ROS 2 has no seq, which rosbags knows.
        stored = self._types_of(name, definition)
        types = {**stored, _HEADER: known[_HEADER]}
        if read_as == DVS_EVENTS:
            from crossspec_ros.events.dvs import dvs_of_ros1

            if (channel.md5 or (name in stored and _md5_of(name, stored))) == _DVS_MD5:
                return _or_nothing(dvs_of_ros1)
        elif name in types and types[name][1] == known[read_as][1]:
            store = get_typestore(Stores.EMPTY)
            store.register(types)
            return _or_nothing(lambda raw: bytes(store.ros1_to_cdr(raw, name)))
        raise _another_definition(channel, name, read_as)

    def check(self, channel: Channel) -> None:
        """Raise InputError where a topic of ROS 2 comes with another definition of a type that is read."""
        if not channel.definition or channel.type not in (*EVENT_TYPES, *IMAGE_TYPES):
            return
        known, read_as = typestore().fielddefs, EVENT_TYPES.get(channel.type, channel.type)
        # Some packages have copies of others' messages under their own name.
        own, others = (name.partition("/")[0] + "/" for name in (channel.type, read_as))
        try:
            stored = self._types_of(channel.type, channel.definition)
        # What rosbags cannot parse tells nothing of the messages.
        except Exception:
            return
        for name, (_, fields) in stored.items():
            as_known = read_as if name == channel.type else name.replace(own, others, 1)
            if as_known not in known:
                continue
            theirs = [(field, str(kind).replace(own, others)) for field, kind in fields]
            ours = [(field, str(kind)) for field, kind in known[as_known][1]]
            # The same layout under other names is the same bytes.
            are_moved = theirs != ours and sorted(theirs) == sorted(ours)
            if are_moved or [kind for _, kind in theirs] != [kind for _, kind in ours]:
                raise _another_definition(channel, name, as_known)

    def _types_of(self, name: str, definition: str) -> dict[str, Any]:
        """The types of a definition."""
        if (name, definition) not in self._read:
            self._read[name, definition] = get_types_from_msg(definition, name)
        return self._read[name, definition]


def _another_definition(channel: Channel, name: str, read_as: str) -> InputError:
    return InputError(
        f"{channel.topic} is not read: its definition of {name} is not that of {read_as}, so record it "
        f"with the driver's present messages"
    )


def _md5_of(name: str, types: dict[str, Any]) -> str:
    store = get_typestore(Stores.EMPTY)
    store.register({**get_typestore(Stores.ROS1_NOETIC).fielddefs, **types})
    return store.generate_msgdef(name, ros_version=1)[1]


def _or_nothing(convert: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    def call(raw: bytes) -> bytes:
        try:
            return convert(raw)
        except (SerdeError, struct.error, ValueError):
            return b""

    return call


class _Record(NamedTuple):
    """A record of a file that may be damaged."""

    fields: dict[bytes, bytes]
    body: bytes
    """Cut where the file ends."""
    is_whole: bool


def salvage_ros1(file: Path, losses: Losses) -> Iterator[tuple[Channel, int, bytes]]:
    """All messages of a damaged file that can be read; what cannot is told in `losses`, a phrase each."""
    channels: dict[bytes, Channel] = {}
    with file.open("rb") as stream:
        if stream.read(len(_MAGIC)) != _MAGIC:
            losses.append(f"{file.name} does not start as a ROS 1 bag")
            return
        # A chunk that was still being written says that it is empty; its records then follow as the file's.
        for record in _records(stream, file.stat().st_size):
            if record.fields.get(b"op") == _CHUNK:
                unpacked = _unpacked(record, losses)
                for inner in _records(io.BytesIO(unpacked), len(unpacked)):
                    yield from _take(inner, channels, losses)
            else:
                yield from _take(record, channels, losses)
            if not record.is_whole:
                losses.append(f"{file.name} has a record that is cut")


def _records(stream: BinaryIO, size: int) -> Iterator[_Record]:
    """One record after the other; the last may be cut."""
    while (head := _block(stream, size))[0]:
        body, is_whole = _block(stream, size)
        yield _Record(_fields(head[0]), body, is_whole and head[1])


def _block(stream: BinaryIO, size: int) -> tuple[bytes, bool]:
    """Bytes with their length before them, and whether they are all there."""
    prefix = stream.read(4)
    if len(prefix) < 4:
        return b"", False
    length = int.from_bytes(prefix, "little")
    data = stream.read(min(length, size - stream.tell()))
    return data, len(data) == length


def _fields(header: bytes) -> dict[bytes, bytes]:
    fields, stream = {}, io.BytesIO(header)
    while field := _block(stream, len(header))[0]:
        name, _, value = field.partition(b"=")
        fields[name] = value
    return fields


def _unpacked(chunk: _Record, losses: Losses) -> bytes:
    decompressor = _DECOMPRESSORS.get(chunk.fields.get(b"compression", b""))
    if decompressor is None:
        return chunk.body
    try:
        return unpack_cut(chunk.body, decompressor)
    except (OSError, RuntimeError) as error:
        losses.append(f"a chunk of {len(chunk.body)} bytes cannot be unpacked ({error})")
        return b""


def _take(
    record: _Record, channels: dict[bytes, Channel], losses: Losses
) -> Iterator[tuple[Channel, int, bytes]]:
    if not record.is_whole:
        return
    fields, number = record.fields, record.fields.get(b"conn", b"")
    if fields.get(b"op") == _CONNECTION and number not in channels:
        try:
            described = _fields(record.body)
            keys = (b"type", b"message_definition", b"md5sum")
            type_name, definition, md5 = (described[key].decode() for key in keys)
            package, _, name = type_name.rpartition("/")
            topic = fields[b"topic"].decode()
        except (LookupError, ValueError) as error:
            losses.append(f"the description of a topic is damaged ({one_line(error)})")
        else:
            channels[number] = Channel(len(channels), topic, f"{package}/msg/{name}", "ros1", definition, md5)
    elif fields.get(b"op") == _MESSAGE and number in channels and len(fields.get(b"time", b"")) == 8:
        sec, nanosec = struct.unpack("<II", fields[b"time"])
        yield channels[number], sec * 1_000_000_000 + nanosec, record.body
