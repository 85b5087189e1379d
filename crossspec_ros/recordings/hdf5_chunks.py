"""Packed chunks of HDF5 files that unpack to another size than a chunk has.

HDF5's filters make room for whatever comes out, so a chunk of some bytes could take gigabytes; of one that
unpacks to less than a chunk HDF5 2.0 reads beyond the end. Most filters write how much comes out before it;
with gzip, lzf and bzip2 only unpacking tells.
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
_HEAD = 40
_STEP = 1 << 20


def _zstd_size(head: bytes) -> int | None:
    try:
        return zstd.get_frame_info(head).decompressed_size or 0
    except zstd.ZstdError:
        return None


_STATED: dict[int, Callable[[bytes], int | None]] = {
    32001: lambda head: struct.unpack_from("<I", head, 4)[0],  # blosc
    32004: lambda head: struct.unpack_from(">Q", head)[0],  # lz4
    32008: lambda head: struct.unpack_from(">Q", head)[0],  # bitshuffle
    32015: _zstd_size,
    32026: lambda head: struct.unpack_from(">q", head, 30)[0] if head[2:9] == b"b2frame" else None,  # blosc2
    ECF: lambda head: 16 * (struct.unpack_from("<I", head)[0] >> 2),
}
"""How much a packed chunk says that it unpacks to, by filter."""
BOUNDED = frozenset((_GZIP, _SHUFFLE, _FLETCHER32, _BZIP2, _LZF, *_STATED))
"""Filters that are known to stay in bounds. The others take their word for it from anybody's file."""


def missized_chunk(path: Path, data: h5py.Dataset) -> str:
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
    least = math.prod(data.chunks) * data.dtype.itemsize
    most = 2 * least + _STEP
    found: list[str] = []
    with path.open("rb") as file:

        def look(chunk: h5py.h5d.StoreInfo) -> bool | None:
            def read(size: int) -> bytes:
                # Where something stands before the file, versions of HDF5 differ in where they count from.
                if data.file.userblock_size:
                    return data.id.read_direct_chunk(chunk.chunk_offset)[1]
                return os.pread(file.fileno(), min(size, chunk.size), chunk.byte_offset)

            is_packed = not chunk.filter_mask >> place & 1
            size = _unpacked_size(number, read, chunk.size, most) if is_packed else chunk.size
            # Chunks of events that fill them in part are read by ourselves.
            if size and (size > most or (size < least and number != ECF)):
                than = "more" if size > most else "less"
                found.append(f"a chunk of {chunk.size} bytes that unpacks to {than} than a chunk has")
            return True if found else None

        data.id.chunk_iter(look)
    return found[0] if found else ""


def _unpacked_size(number: int, read: Callable[[int], bytes], size: int, most: int) -> int | None:
    """How much a chunk of `size` bytes unpacks to, or something above `most`.

    None or 0 where it is damaged, which HDF5 finds by itself, and what is beside it can be read.
    """
    if number in _STATED:
        return _STATED[number](read(_HEAD).ljust(_HEAD, b"\0"))
    if number == _LZF:
        return _lzf_size(np.frombuffer(read(size), np.uint8), most)
    if number == _GZIP:
        inflate = zlib.decompressobj()
        return _counted(inflate, lambda: inflate.unconsumed_tail, read(size), most)
    return _counted(bz2.BZ2Decompressor(), lambda: b"", read(size), most)


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


def _counted(stream: Any, rest: Callable[[], bytes], packed: bytes, most: int) -> int | None:
    count = 0
    try:
        while count <= most and (part := stream.decompress(packed, _STEP)):
            count += len(part)
            packed = rest()
    except (OSError, EOFError, zlib.error):
        return None
    return count if stream.eof or count > most else None
