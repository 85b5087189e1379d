"""ROS 1 bags from anybody: where the reader of rosbags is bounded, and what it unpacks is kept."""

from __future__ import annotations

from bz2 import BZ2Decompressor
from collections import OrderedDict
from collections.abc import Collection, Generator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from lz4.frame import LZ4FrameDecompressor
from rosbags.interfaces import Connection
from rosbags.rosbag1 import reader as ros1

from crossspec_ros.recordings.bag_budget import LONGEST, Described, Spent, budget_of
from crossspec_ros.recordings.unpacking import MOST_UNPACKED, TooLarge, unpack

_MOST_KEPT = 64 << 20
"""Bytes of unpacked chunks that a reader keeps, of which a player has two."""
_CHUNK = 256
"""Bytes that a kept chunk takes, however short it is."""
_INDEX_RECORD = 55
"""Bytes on disk of what a chunk says of one topic, without a message."""
LONGEST_HEADER = 1 << 20
"""Bytes of the fields before a record, or of those that describe a topic."""


class _Header(ros1.Header):
    """One whose fields are not too many, in place of rosbags' own for all of its readers."""

    @classmethod
    def read(cls, src: BinaryIO, expect: ros1.RecordType | None = None) -> ros1.Header:
        at = src.tell()
        if (size := ros1.read_uint32(src)) > LONGEST_HEADER:
            raise ros1.ReaderError(f"it has a header of {size} bytes, more than are read")
        src.seek(at)
        return super().read(src, expect)


vars(ros1)["Header"] = _Header
ros1.decompressors.update(
    bz2=partial(unpack, decompressor=BZ2Decompressor), lz4=partial(unpack, decompressor=LZ4FrameDecompressor)
)


class Ros1Reader(ros1.Reader):
    """One whose topics and index are not too much, and whose chunks are not unpacked without end.

    The messages of all topics come in the order of recording, so that chunks that were written topic after
    topic are read in turns. The last of them are therefore kept.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._stored = path.stat().st_size
        self._promised_bytes = self._index_bytes = 0
        self._budget = budget_of(path)
        self._described = Described(self._budget)
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._kept_bytes = 0
        self._begin()

    def _begin(self) -> None:
        self._spent = Spent(self._stored, MOST_UNPACKED)
        self._seen: set[int] = set()

    @property
    def message_count(self) -> int:
        """How many messages the index promises."""
        # rosbags goes through all chunks again for each topic.
        return sum(sum(chunk.connection_counts.values()) for chunk in self.chunk_infos)

    def read_connection(self) -> Connection:
        connection = super().read_connection()
        if connection.id in self._described:
            raise ros1.ReaderError("it has topics that share a number")
        self._described[connection.id] = connection.topic, connection.msgtype, connection.msgdef.data
        return connection

    def read_chunk_info(self) -> ros1.ChunkInfo:
        assert self.bio
        at = self.bio.tell()
        self._promised_bytes += _INDEX_RECORD * _Header.read(self.bio).get_uint32("count")
        if self._promised_bytes > self._stored:
            raise ros1.ReaderError("its chunks have more topics than there is room for")
        self.bio.seek(at)
        return super().read_chunk_info()

    def read_index_data(self, pos: int, indexes: dict[int, list[Any]]) -> None:
        assert self.bio
        before = self.bio.tell()
        super().read_index_data(pos, indexes)
        self._index_bytes += self.bio.tell() - before
        if self._index_bytes > self._stored:
            raise TooLarge(
                "names its chunks more than once in its index: check where it comes from, and record it again"
            )

    def read_chunk(self) -> Any:
        chunk = super().read_chunk()
        if chunk.datasize > LONGEST:
            raise ros1.ReaderError(f"it has a chunk of {chunk.datasize} bytes, more than are read")
        # Of no bytes on disk: `_unpack` reads them where it must.
        return chunk._replace(datasize=0, decompressor=lambda nothing: self._unpack(chunk))

    def _unpack(self, chunk: ros1.Chunk) -> bytes:
        assert self.bio
        if chunk.datapos in self._kept:
            self._kept.move_to_end(chunk.datapos)
            return self._kept[chunk.datapos]
        self._budget.time.check()
        self.bio.seek(chunk.datapos)
        out = chunk.decompressor(ros1.read_bytes(self.bio, chunk.datasize))
        try:
            self._spent.add(len(out))
        except TooLarge:
            if chunk.datapos not in self._seen:
                raise
            raise TooLarge(
                f"has chunks of more than {_MOST_KEPT >> 20} MB that overlap in time: record it again with "
                f"smaller chunks"
            ) from None
        self._seen.add(chunk.datapos)
        self._kept[chunk.datapos] = out
        self._kept_bytes += len(out) + _CHUNK
        while self._kept_bytes > _MOST_KEPT:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= len(oldest) + _CHUNK
        return out

    def messages(
        self, connections: Collection[Connection] = (), start: int | None = None, stop: int | None = None
    ) -> Generator[tuple[Connection, int, bytes], None, None]:
        self._begin()
        yield from super().messages(connections, start, stop)

    def close(self) -> None:
        self._kept.clear()
        self._kept_bytes = 0
        self._described.clear()
        super().close()
