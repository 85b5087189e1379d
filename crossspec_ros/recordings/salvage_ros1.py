"""What a damaged ROS 1 bag still has: its records one after the other, without the index at its end.

https://wiki.ros.org/Bags/Format/2.0
"""

from __future__ import annotations

import io
import struct
from bz2 import BZ2Decompressor
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from lz4.frame import LZ4FrameDecompressor

from crossspec_ros.errors import one_line
from crossspec_ros.recordings.bag_reader import StoredMessage
from crossspec_ros.recordings.losses import Losses
from crossspec_ros.recordings.packing import unpack_cut
from crossspec_ros.recordings.ros1 import Definitions

_MAGIC = b"#ROSBAG V2.0\n"
_MESSAGE, _CHUNK, _CONNECTION = b"\x02", b"\x05", b"\x07"
_DECOMPRESSORS = {b"bz2": BZ2Decompressor, b"lz4": LZ4FrameDecompressor}


class _Record(NamedTuple):
    fields: dict[bytes, bytes]
    body: bytes
    """Cut where the file ends."""
    is_whole: bool


class _Topic(NamedTuple):
    topic: str
    type: str
    to_cdr: Callable[[bytes], bytes]


def salvage_ros1(file: Path, losses: Losses) -> Iterator[StoredMessage]:
    """All messages that can still be read; what cannot is told in `losses`, a phrase each."""
    topics: dict[bytes, _Topic] = {}
    definitions = Definitions()
    with file.open("rb") as stream:
        if stream.read(len(_MAGIC)) != _MAGIC:
            losses.append(f"{file.name} does not start as a ROS 1 bag")
            return
        # A chunk that was still being written says that it is empty; its records then follow as the file's.
        for record in _records(stream, file.stat().st_size):
            if record.fields.get(b"op") == _CHUNK:
                unpacked = _unpacked(record, losses)
                for inner in _records(io.BytesIO(unpacked), len(unpacked)):
                    yield from _take(inner, topics, definitions, losses)
            else:
                yield from _take(record, topics, definitions, losses)
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
    record: _Record, topics: dict[bytes, _Topic], definitions: Definitions, losses: Losses
) -> Iterator[StoredMessage]:
    if not record.is_whole:
        return
    fields, number = record.fields, record.fields.get(b"conn", b"")
    if fields.get(b"op") == _CONNECTION and number not in topics:
        try:
            description = _fields(record.body)
            package, _, name = description[b"type"].decode().rpartition("/")
            topic, type_name = fields[b"topic"].decode(), f"{package}/msg/{name}"
            definition, md5 = (description[key].decode() for key in (b"message_definition", b"md5sum"))
            told = _Topic(topic, type_name, definitions.to_cdr(topic, type_name, definition, md5))
        # rosbags promises no exception for a definition that it cannot read.
        except Exception as error:
            losses.append(f"the description of a topic is damaged ({one_line(error)})")
        else:
            topics[number] = told
    elif fields.get(b"op") == _MESSAGE and number in topics and len(fields.get(b"time", b"")) == 8:
        known = topics[number]
        sec, nanosec = struct.unpack("<II", fields[b"time"])
        recorded_ns = sec * 1_000_000_000 + nanosec
        yield StoredMessage(known.topic, known.type, recorded_ns, known.to_cdr(record.body))
