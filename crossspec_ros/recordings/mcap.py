"""MCAP files of any profile, whole or damaged: their channels, and the messages of those that are wanted.

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
from typing import BinaryIO, NamedTuple
from zlib import crc32

from lz4.frame import LZ4FrameDecompressor

from crossspec_ros.recordings.storage import Channel, Decompressor, Losses, unpack, unpack_cut, zstd

MAGIC = b"\x89MCAP0\r\n"
_SCHEMA, _CHANNEL, _MESSAGE, _CHUNK, _DATA_END = 0x03, 0x04, 0x05, 0x06, 0x0F
_CHUNK_INDEX, _STATISTICS = 0x08, 0x0B
_DECOMPRESSORS: dict[str, Callable[[], Decompressor]] = {
    "zstd": zstd.ZstdDecompressor,
    "lz4": LZ4FrameDecompressor,
}
_FOOTER_HEAD = struct.pack("<BQ", 0x02, 20)
_END_BYTES = len(_FOOTER_HEAD) + 20 + len(MAGIC)
_SHORT_TYPE = re.compile(r"(\w+)/(\w+)")


class McapError(ValueError):
    """A file is damaged."""


class _Chunk(NamedTuple):
    """A chunk as the summary describes it."""

    start_ns: int
    at: int
    length: int
    end: int
    """Behind it and its message indexes."""
    numbers: array[int]
    """Channels by its message indexes; none where it has no such."""


class _Descriptions:
    """Schemas and channels, from the records that describe them."""

    def __init__(self) -> None:
        self._schemas: dict[int, tuple[str, str]] = {}
        self.channels: dict[int, tuple[int, str, str, str]] = {}

    def take(self, opcode: int, record: memoryview) -> None:
        """Take what describes something; raises struct.error and UnicodeDecodeError."""
        if opcode == _SCHEMA:
            name, at = _text(record, 2)
            encoding, at = _text(record, at)
            definition = _text(record, at)[0] if encoding in ("ros1msg", "ros2msg") else ""
            if short := _SHORT_TYPE.fullmatch(name):
                name = f"{short[1]}/msg/{short[2]}"
            self._schemas[int.from_bytes(record[:2], "little")] = name, definition
        elif opcode == _CHANNEL:
            number, schema = struct.unpack_from("<HH", record)
            topic, at = _text(record, 4)
            encoding, at = _text(record, at)
            told: dict[str, str] = {}
            if encoding == "ros1":
                end = at + 4 + struct.unpack_from("<I", record, at)[0]
                at += 4
                while at < end:
                    key, at = _text(record, at)
                    told[key], at = _text(record, at)
            self.channels[number] = schema, topic, encoding, told.get("md5sum", "")

    def are_whole(self) -> bool:
        """Whether there are channels, and the schemas of all of them."""
        schemas = {schema for schema, *_ in self.channels.values()} - {0}
        return bool(self.channels) and schemas <= self._schemas.keys()

    def channel(self, number: int, messages: int = 0) -> Channel:
        schema, topic, encoding, md5 = self.channels[number]
        name, definition = self._schemas.get(schema, ("", ""))
        return Channel(number, topic, name, encoding, definition, md5, messages)


class McapReader:
    """An open file; raises any exception for damage."""

    def __init__(self, path: Path) -> None:
        self._descriptions = _Descriptions()
        self._counts: Counter[int] = Counter()
        self._chunks: list[_Chunk] = []
        self.message_count = self.end_time = 0
        self._stream = path.open("rb")
        try:
            self._open(path.stat().st_size)
        except BaseException:
            self.close()
            raise
        numbers = sorted(self._descriptions.channels)
        self.channels = [self._descriptions.channel(number, self._counts[number]) for number in numbers]

    def close(self) -> None:
        """Let go of the file."""
        self._stream.close()

    def messages(
        self, wanted: Collection[Channel], since_ns: int | None
    ) -> Iterator[tuple[Channel, int, bytes]]:
        """The messages of these channels, from a time of recording on.

        They come in the order of recording, and where no index tells it, as they lie in the file.
        """
        of_number = {channel.number: channel for channel in wanted}
        since = since_ns or 0
        if not self._chunks:
            for record in self._data():
                number, recorded_ns = _message_head(record)
                if number in of_number and recorded_ns >= since:
                    yield of_number[number], recorded_ns, bytes(record[22:])
            return
        waiting: list[tuple[int, int, int, bytes]] = []
        order = 0
        for chunk in [*self._chunks, None]:
            while waiting and (chunk is None or waiting[0][0] < chunk.start_ns):
                recorded_ns, _, number, data = heappop(waiting)
                yield of_number[number], recorded_ns, data
            if chunk is None or (chunk.numbers and of_number.keys().isdisjoint(chunk.numbers)):
                continue
            for record in self._messages_of(self._body(chunk)):
                number, recorded_ns = _message_head(record)
                if number in of_number and recorded_ns >= since:
                    heappush(waiting, (recorded_ns, order, number, bytes(record[22:])))
                    order += 1

    def _open(self, size: int) -> None:
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
        if not has_statistics or not self._descriptions.are_whole():
            self._count()

    def _read_summary(self, end: int) -> bool:
        """Whether it says how many messages there are."""
        found = False
        for opcode, body in self._whole_records(self._end, end):
            if opcode == _CHUNK_INDEX:
                self._chunks.append(_chunk_of(body))
            elif opcode == _STATISTICS:
                self.message_count, self.end_time = struct.unpack_from("<Q26xQ", body)
                self.end_time += bool(self.message_count)
                counts = body[46 : 46 + int.from_bytes(body[42:46], "little")]
                self._counts.update(dict(struct.iter_unpack("<HQ", counts)))
                found = True
            else:
                self._descriptions.take(opcode, body)
        self._chunks.sort()
        return found

    def _has_messages_beside_chunks(self) -> bool:
        """Whether some lie where no index leads to: then all are read as they lie in the file."""
        at = len(MAGIC)
        for chunk in [*sorted(self._chunks, key=lambda chunk: chunk.at), None] if self._chunks else ():
            while at < (chunk.at if chunk else self._end):
                self._stream.seek(at)
                opcode, length = struct.unpack("<BQ", self._stream.read(9))
                if opcode == _MESSAGE:
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
        for opcode, body in self._whole_records(len(MAGIC), self._end):
            if opcode == _CHUNK:
                yield from self._messages_of(body)
            elif opcode == _MESSAGE:
                yield body
            else:
                self._descriptions.take(opcode, body)

    def _messages_of(self, body: memoryview) -> Iterator[memoryview]:
        size, crc, compression, packed = _chunk_parts(body)
        decompressor = _DECOMPRESSORS.get(compression)
        if compression and not decompressor:
            raise McapError(f"its chunks are packed with {compression!r}, which is not read")
        records = unpack(packed, decompressor) if decompressor else packed
        if len(records) != size or (crc and crc32(records) != crc):
            raise McapError("a chunk unpacks to something else than was packed")
        for opcode, record in _chunk_records(records):
            if opcode == _MESSAGE:
                yield record
            else:
                self._descriptions.take(opcode, record)

    def _body(self, chunk: _Chunk) -> memoryview:
        for opcode, body in self._whole_records(chunk.at, chunk.at + chunk.length):
            if opcode == _CHUNK:
                return body
        raise McapError("its index names a chunk that is not there")

    def _whole_records(self, start: int, end: int) -> Iterator[tuple[int, memoryview]]:
        for opcode, body, is_whole in _records(self._stream, start, end):
            if not is_whole:
                raise McapError("it is cut, or one of its records is")
            yield opcode, body


def salvage_mcap(file: Path, losses: Losses) -> Iterator[tuple[Channel, int, bytes]]:
    """All messages of a damaged file that can be read; what cannot is told in `losses`, a phrase each."""
    descriptions, opcode = _Descriptions(), 0
    with file.open("rb") as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            losses.append(f"{file.name} does not start as an MCAP file")
            return
        for opcode, body, _ in _records(stream, len(MAGIC), file.stat().st_size):
            inner = _cut_chunk_records(body, losses) if opcode == _CHUNK else [(opcode, body)]
            for kind, record in inner:
                try:
                    descriptions.take(kind, record)
                    number, recorded_ns = _message_head(record) if kind == _MESSAGE else (-1, 0)
                except (struct.error, UnicodeDecodeError) as error:
                    losses.append(f"a record of {len(record)} bytes is damaged ({error})")
                else:
                    if number in descriptions.channels:
                        yield descriptions.channel(number), recorded_ns, bytes(record[22:])
            if opcode == _DATA_END:
                return
    losses.append(f"{file.name} is cut or damaged, so nothing is readable after some place in it")


def _cut_chunk_records(body: memoryview, losses: Losses) -> Iterator[tuple[int, memoryview]]:
    try:
        size, crc, compression, stored = _chunk_parts(body)
    except (struct.error, UnicodeDecodeError) as error:
        losses.append(f"a chunk of {len(body)} bytes is damaged ({error})")
        return
    decompressor = _DECOMPRESSORS.get(compression)
    try:
        unpacked = unpack_cut(stored, decompressor) if decompressor else stored
    except (zstd.ZstdError, RuntimeError) as error:
        losses.append(f"a chunk of {size} bytes cannot be unpacked ({error})")
        return
    if len(unpacked) == size and crc and crc32(unpacked) != crc:
        losses.append(f"a chunk of {size} bytes has another checksum than when it was written")
    yield from _chunk_records(unpacked)


def _records(stream: BinaryIO, start: int, end: int) -> Iterator[tuple[int, memoryview, bool]]:
    """Opcode and body of each record that begins from `start` to `end`, and whether it is all there."""
    at = start
    while at < end:
        stream.seek(at)
        opcode, length = struct.unpack("<BQ", stream.read(9).ljust(9, b"\0"))
        body = stream.read(min(length, end))
        yield opcode, memoryview(body), len(body) == length
        at += 9 + length


def _chunk_of(body: memoryview) -> _Chunk:
    start_ns, _, at, length, offsets = struct.unpack_from("<4QI", body)
    numbers = array("H", (number for number, _ in struct.iter_unpack("<HQ", body[36 : 36 + offsets])))
    (indexes,) = struct.unpack_from("<Q", body, 36 + offsets)
    return _Chunk(start_ns, at, length, at + length + indexes, numbers)


def _chunk_parts(body: memoryview) -> tuple[int, int, str, memoryview]:
    """Bytes of an unpacked chunk, its checksum, its packing, and what is packed; raises struct.error."""
    size, crc = struct.unpack_from("<QI", body, 16)
    compression, start = _text(body, 28)
    (length,) = struct.unpack_from("<Q", body, start)
    # Not a copy: it may be as large as what comes of it.
    return size, crc, compression, body[start + 8 : start + 8 + length]


def _chunk_records(unpacked: bytes | memoryview) -> Iterator[tuple[int, memoryview]]:
    """Opcode and body of each whole record of a chunk."""
    view, start = memoryview(unpacked), 0
    while start + 9 <= len(view):
        opcode, length = struct.unpack_from("<BQ", view, start)
        start += 9 + length
        # The end of a cut record would pass for a whole message.
        if start <= len(view):
            yield opcode, view[start - length : start]


def _text(record: memoryview, at: int) -> tuple[str, int]:
    """A text after its length, and where it ends; raises struct.error and UnicodeDecodeError."""
    (length,) = struct.unpack_from("<I", record, at)
    end = at + 4 + length
    if end > len(record):
        raise struct.error("a text goes beyond its record")
    return str(record[at + 4 : end], "utf-8"), end


def _message_head(record: memoryview) -> tuple[int, int]:
    number, recorded_ns = struct.unpack_from("<H4xQ", record)
    return number, recorded_ns
