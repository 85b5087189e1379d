"""Packed chunks of HDF5 files that unpack to more than a chunk has.

HDF5's filters make room for whatever comes out, so a chunk of some bytes could take gigabytes. Most of them
write how much that is before it; with gzip, lzf and bzip2 only unpacking tells, which is done where a chunk
is so large that it matters.
"""

from __future__ import annotations

import bz2
import math
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from crossspec_ros.compiled import compiled
from crossspec_ros.recordings.ecf import FILTER as ECF
from crossspec_ros.recordings.unpacking import zstd

_GZIP, _SHUFFLE, _FLETCHER32, _BZIP2, _LZF = 1, 2, 3, 307, 32000
_MOST_UNPACKED = 400 << 20
_RATIOS = {_GZIP: 1032, _LZF: 88}
"""The most that these pack."""
_HEAD = 40
_STEP = 1 << 20


def _zstd_size(head: bytes) -> int:
    try:
        return zstd.get_frame_info(head).decompressed_size or 0
    except zstd.ZstdError:  # the reader says so
        return 0


_STATED: dict[int, Callable[[bytes], int]] = {
    32001: lambda head: struct.unpack_from("<I", head, 4)[0],  # blosc
    32004: lambda head: struct.unpack_from(">Q", head)[0],  # lz4
    32008: lambda head: struct.unpack_from(">Q", head)[0],  # bitshuffle
    32015: _zstd_size,
    32026: lambda head: struct.unpack_from(">q", head, 30)[0] if head[2:9] == b"b2frame" else 0,  # blosc2
    ECF: lambda head: 16 * (struct.unpack_from("<I", head)[0] >> 2),
}
"""How much a packed chunk says that it unpacks to, by filter."""
BOUNDED = frozenset((_GZIP, _SHUFFLE, _FLETCHER32, _BZIP2, _LZF, *_STATED))
"""Filters that are known to stay in bounds. The others take their word for it from anybody's file."""


def oversized_chunk(path: Path, data: h5py.Dataset) -> str:
    """Why the chunks of a data set must not be unpacked, as what it has; empty where they may be."""
    packing = data.id.get_create_plist()
    filters = [packing.get_filter(i) for i in range(packing.get_nfilters())]
    packers = [(place, each) for place, each in enumerate(filters) if each[0] not in (_SHUFFLE, _FLETCHER32)]
    if len(packers) > 1:
        return "chunks that are packed twice"
    if not packers:
        return ""
    if any(number == _SHUFFLE for number, *_ in filters[packers[0][0] :]):
        return "chunks that are shuffled once they are packed"
    place, (number, _, options, *_) = packers[0]
    # Without compression, bitshuffle only moves bits.
    if number == 32008 and (len(options) < 5 or options[4] not in (2, 3)):
        return ""
    most = 2 * math.prod(data.chunks) * data.dtype.itemsize + _STEP
    found: list[int] = []
    with path.open("rb") as file:

        def look(chunk: h5py.h5d.StoreInfo) -> bool | None:
            def read(size: int) -> bytes:
                # Where something stands before the file, versions of HDF5 differ in where they count from.
                if data.file.userblock_size:
                    return data.id.read_direct_chunk(chunk.chunk_offset)[1]
                return os.pread(file.fileno(), min(size, chunk.size), chunk.byte_offset)

            is_packed = not chunk.filter_mask >> place & 1
            if is_packed and _unpacked_size(number, chunk.size, read, most) > most:
                found.append(chunk.size)
            return True if found else None

        data.id.chunk_iter(look)
    return f"a chunk of {found[0]} bytes that unpacks to more than a chunk has" if found else ""


def _unpacked_size(number: int, size: int, read: Callable[[int], bytes], most: int) -> int:
    """How much a chunk unpacks to, or at least something above `most`; 0 where it cannot be much."""
    if number in _STATED:
        return _STATED[number](read(_HEAD).ljust(_HEAD, b"\0"))
    if size * _RATIOS.get(number, 0) <= _MOST_UNPACKED and number != _BZIP2:
        return 0
    if number == _LZF:
        return _lzf_size(np.frombuffer(read(size), np.uint8), most)
    if number == _GZIP:
        inflate = zlib.decompressobj()
        return _counted(inflate.decompress, lambda: inflate.unconsumed_tail, read(size), most)
    return _counted(bz2.BZ2Decompressor().decompress, lambda: b"", read(size), most)


@compiled("int64(Array(uint8, 1, 'C', readonly=True), int64)")
def _lzf_size(data: np.ndarray, most: int) -> int:
    place: Any = 0
    size: Any = 0
    while place < data.size and size <= most:
        control: Any = np.int64(data[place])
        place += 1
        if control < 32:
            size += control + 1
            place += control + 1
            continue
        size += (control >> 5) + 2
        if control >> 5 == 7 and place < data.size:
            size += np.int64(data[place])
            place += 1
        place += 1
    return size


def _counted(
    decompress: Callable[[bytes, int], bytes], rest: Callable[[], bytes], packed: bytes, most: int
) -> int:
    count = 0
    try:
        while count <= most and (part := decompress(packed, _STEP)):
            count += len(part)
            packed = rest()
    except (OSError, EOFError, zlib.error):  # the reader says so
        pass
    return count
