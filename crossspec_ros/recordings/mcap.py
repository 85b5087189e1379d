"""MCAP files of any profile: their channels, and the messages of those that are wanted.

The reader of rosbags asks for the profile and for message indexes, which some writers leave out.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from heapq import heappop, heappush
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from lz4.frame import LZ4FrameDecompressor
from rosbags.interfaces import Connection, ConnectionExtRosbag2, MessageDefinition, MessageDefinitionFormat

from crossspec_ros.recordings.packing import Decompressor, unpack, zstd

MAGIC = b"\x89MCAP0\r\n"
SCHEMA, CHANNEL, MESSAGE, CHUNK, DATA_END = 0x03, 0x04, 0x05, 0x06, 0x0F
_CHUNK_INDEX, _STATISTICS = 0x08, 0x0B
DECOMPRESSORS: dict[str, Callable[[], Decompressor]] = {
    "zstd": zstd.ZstdDecompressor,
    "lz4": LZ4FrameDecompressor,
}
_FOOTER_HEAD = struct.pack("<BQ", 0x02, 20)
_END_BYTES = len(_FOOTER_HEAD) + 20 + len(MAGIC)
_SHORT_TYPE = re.compile(r"(\w+)/(\w+)")


class McapError(ValueError):
    """A file is damaged."""


class Schema(NamedTuple):
    """A type's name as ROS 2 has it, and its definition where it is one of ROS 1."""

    name: str
    definition: str


NO_SCHEMA = Schema("", "")


class Channel(NamedTuple):
    """A topic: its type's number, the encoding of its messages, and what ROS 1 knows its type by."""

    schema: int
    topic: str
    encoding: str
    md5: str


class _Chunk(NamedTuple):
    start_ns: int
    at: int
    length: int
    end: int
    """Behind it and its message indexes."""
    channels: array[int]
    """By its message indexes; none where it has no such."""


class McapReader:
    """An open file; raises any exception for damage."""

    def __init__(self, path: Path) -> None:
        self._schemas: dict[int, Schema] = {}
        self._channels: dict[int, Channel] = {}
        self._counts: Counter[int] = Counter()
        self._chunks: list[_Chunk] = []
        self.message_count = self.end_time = 0
        self._stream = path.open("rb")
        try:
            self._open(path.stat().st_size)
        except BaseException:
            self.close()
            raise
        self.connections = [self._connection(number) for number in sorted(self._channels)]

    def close(self) -> None:
        """Let go of the file."""
        self._stream.close()

    def messages(
        self, connections: Collection[Connection], start: int | None = None
    ) -> Iterator[tuple[Connection, int, bytes]]:
        """The messages of these channels, from a time of recording on.

        They come in the order of recording, and where no index tells it, as they lie in the file.
        """
        wanted = {connection.id: connection for connection in connections}
        since = start or 0
        if not self._chunks:
            for record in self._data():
                number, recorded_ns = _message_head(record)
                if number in wanted and recorded_ns >= since:
                    yield wanted[number], recorded_ns, bytes(record[22:])
            return
        waiting: list[tuple[int, int, int, bytes]] = []
        order = 0
        for chunk in [*self._chunks, None]:
            while waiting and (chunk is None or waiting[0][0] < chunk.start_ns):
                recorded_ns, _, number, data = heappop(waiting)
                yield wanted[number], recorded_ns, data
            if chunk is None or (chunk.channels and wanted.keys().isdisjoint(chunk.channels)):
                continue
            for record in self._messages_of(self._body(chunk)):
                number, recorded_ns = _message_head(record)
                if number in wanted and recorded_ns >= since:
                    heappush(waiting, (recorded_ns, order, number, bytes(record[22:])))
                    order += 1

    def _connection(self, number: int) -> Connection:
        channel = self._channels[number]
        schema = self._schemas.get(channel.schema, NO_SCHEMA)
        definition = MessageDefinition(MessageDefinitionFormat.MSG, schema.definition)
        ext = ConnectionExtRosbag2(channel.encoding, [])
        count = self._counts[number]
        return Connection(number, channel.topic, schema.name, definition, channel.md5, count, ext, self)

    def _open(self, size: int) -> None:
        self._size = size
        if self._stream.read(len(MAGIC)) != MAGIC:
            raise McapError("it does not start as an MCAP file")
        self._stream.seek(max(0, size - _END_BYTES))
        end = self._stream.read()
        if not (end.startswith(_FOOTER_HEAD) and end.endswith(MAGIC)):
            raise McapError("it has no end, as when a recorder was killed")
        (summary,) = struct.unpack_from("<Q", end, len(_FOOTER_HEAD))
        footer = size - _END_BYTES
        if summary and not len(MAGIC) <= summary <= footer:
            raise McapError("its summary lies outside of it")
        self._end = summary or footer
        has_statistics = summary and self._read_summary(footer)
        if self._has_messages_beside_chunks():
            self._chunks.clear()
        schemas = {channel.schema for channel in self._channels.values()} - {0}
        if not has_statistics or not self._channels or schemas - self._schemas.keys():
            self._count()

    def _read_summary(self, end: int) -> bool:
        """Whether it says how many messages there are."""
        found = False
        for opcode, body in self._records(self._end, end):
            if opcode == _CHUNK_INDEX:
                self._chunks.append(self._chunk(body))
            elif opcode == _STATISTICS:
                self.message_count, self.end_time = struct.unpack_from("<Q26xQ", body)
                self.end_time += bool(self.message_count)
                counts = body[46 : 46 + int.from_bytes(body[42:46], "little")]
                self._counts.update(dict(struct.iter_unpack("<HQ", counts)))
                found = True
            else:
                self._describe(opcode, body)
        self._chunks.sort()
        return found

    def _chunk(self, body: memoryview) -> _Chunk:
        start_ns, _, at, length, offsets = struct.unpack_from("<4QI", body)
        numbers = array("H", (number for number, _ in struct.iter_unpack("<HQ", body[36 : 36 + offsets])))
        (indexes,) = struct.unpack_from("<Q", body, 36 + offsets)
        return _Chunk(start_ns, at, length, at + length + indexes, numbers)

    def _has_messages_beside_chunks(self) -> bool:
        """Whether some lie where no index leads to: then all are read as they lie in the file."""
        at = len(MAGIC)
        for chunk in [*sorted(self._chunks, key=lambda chunk: chunk.at), None] if self._chunks else ():
            while at < (chunk.at if chunk else self._end):
                self._stream.seek(at)
                opcode, length = struct.unpack("<BQ", self._stream.read(9))
                if opcode == MESSAGE:
                    return True
                at += 9 + length
            at = max(at, chunk.end) if chunk else at
        return False

    def _count(self) -> None:
        """Read all messages, where no summary tells how many there are."""
        self._counts.clear()
        self.message_count = self.end_time = 0
        for record in self._data():
            number, recorded_ns = _message_head(record)
            self._counts[number] += 1
            self.message_count += 1
            self.end_time = max(self.end_time, recorded_ns + 1)

    def _data(self) -> Iterator[memoryview]:
        """All messages as they lie in the file."""
        for opcode, body in self._records(len(MAGIC), self._end):
            if opcode == CHUNK:
                yield from self._messages_of(body)
            elif opcode == MESSAGE:
                yield body
            else:
                self._describe(opcode, body)

    def _messages_of(self, body: memoryview) -> Iterator[memoryview]:
        size, crc, compression, packed = chunk_parts(body)
        decompressor = DECOMPRESSORS.get(compression)
        if compression and not decompressor:
            raise McapError(f"its chunks are packed with {compression!r}, which is not read")
        records = unpack(packed, decompressor) if decompressor else packed
        if len(records) != size or (crc and crc32(records) != crc):
            raise McapError("a chunk unpacks to something else than was packed")
        for opcode, record in chunk_records(records):
            if opcode == MESSAGE:
                yield record
            else:
                self._describe(opcode, record)

    def _describe(self, opcode: int, body: memoryview) -> None:
        if opcode == SCHEMA:
            number, schema = read_schema(body)
            self._schemas[number] = schema
        elif opcode == CHANNEL:
            number, channel = read_channel(body)
            self._channels[number] = channel

    def _body(self, chunk: _Chunk) -> memoryview:
        for opcode, body in self._records(chunk.at, chunk.at + chunk.length):
            if opcode == CHUNK:
                return body
        raise McapError("its index names a chunk that is not there")

    def _records(self, start: int, end: int) -> Iterator[tuple[int, memoryview]]:
        at = start
        while at < end:
            self._stream.seek(at)
            head = self._stream.read(9)
            opcode, length = struct.unpack("<BQ", head)
            body = self._stream.read(min(length, self._size))
            if len(body) != length:
                raise McapError("it is cut, or one of its records is")
            at += 9 + length
            yield opcode, memoryview(body)


def type_of(name: str, encoding: str) -> str:
    """A type as it is told and chosen by: one of no encoding that is read is none that is played."""
    foreign = "" if encoding in ("cdr", "ros1") else f" in {encoding or 'no encoding'}"
    return f"{name or 'no type'}{foreign}"


def chunk_parts(body: bytes | memoryview) -> tuple[int, int, str, memoryview]:
    """Bytes of an unpacked chunk, its checksum, its packing, and what is packed; raises struct.error."""
    size, crc = struct.unpack_from("<QI", body, 16)
    compression, start = text(body, 28)
    (length,) = struct.unpack_from("<Q", body, start)
    # Not a copy: it may be as large as what comes of it.
    return size, crc, compression, memoryview(body)[start + 8 : start + 8 + length]


def chunk_records(unpacked: bytes | memoryview) -> Iterator[tuple[int, memoryview]]:
    """Opcode and body of each whole record of a chunk."""
    view, start = memoryview(unpacked), 0
    while start + 9 <= len(view):
        opcode, length = struct.unpack_from("<BQ", view, start)
        start += 9 + length
        # The end of a cut record would pass for a whole message.
        if start <= len(view):
            yield opcode, view[start - length : start]


def read_schema(record: bytes | memoryview) -> tuple[int, Schema]:
    """A schema and its number; raises struct.error and UnicodeDecodeError."""
    name, at = text(record, 2)
    encoding, at = text(record, at)
    definition = text(record, at)[0] if encoding == "ros1msg" else ""
    if short := _SHORT_TYPE.fullmatch(name):
        name = f"{short[1]}/msg/{short[2]}"
    return int.from_bytes(record[:2], "little"), Schema(name, definition)


def read_channel(record: bytes | memoryview) -> tuple[int, Channel]:
    """A channel and its number; raises struct.error and UnicodeDecodeError."""
    number, schema = struct.unpack_from("<HH", record)
    topic, at = text(record, 4)
    encoding, at = text(record, at)
    told: dict[str, str] = {}
    if encoding == "ros1":
        end = at + 4 + struct.unpack_from("<I", record, at)[0]
        at += 4
        while at < end:
            key, at = text(record, at)
            told[key], at = text(record, at)
    return number, Channel(schema, topic, encoding, told.get("md5sum", ""))


def text(record: bytes | memoryview, at: int) -> tuple[str, int]:
    """A text after its length, and where it ends; raises struct.error and UnicodeDecodeError."""
    (length,) = struct.unpack_from("<I", record, at)
    end = at + 4 + length
    if end > len(record):
        raise struct.error("a text goes beyond its record")
    return str(record[at + 4 : end], "utf-8"), end


def _message_head(record: bytes | memoryview) -> tuple[int, int]:
    number, recorded_ns = struct.unpack_from("<H4xQ", record)
    return number, recorded_ns
