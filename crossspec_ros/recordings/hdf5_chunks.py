"""Chunks of HDF5 files that unpack to another size than a chunk has.

HDF5's filters make room for whatever comes out, so a chunk of some bytes could take gigabytes; of one that
unpacks to less than a chunk HDF5 2.0 reads beyond the end. Blosc writes how much comes out before it; with
gzip and lzf only unpacking tells.
"""

from __future__ import annotations

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
from crossspec_ros.recordings.ecf import filters_of, is_ecf

_GZIP, _SHUFFLE, _FLETCHER32, _LZF, _BLOSC = 1, 2, 3, 32000, 32001
BOUNDED = frozenset((_GZIP, _SHUFFLE, _FLETCHER32, _LZF, _BLOSC))
"""Filters that stay in bounds where sizes are right. Others read beyond a chunk, or tell nobody of damage."""
_CHECKSUM_BYTES = 4
_STEP = 1 << 20


def missized_chunk(path: Path, data: h5py.Dataset) -> str:
    """Why the chunks of a data set must not be unpacked, as what it has; empty where they may be."""
    filters = filters_of(data)
    packers = [place for place, number in enumerate(filters) if number not in (_SHUFFLE, _FLETCHER32)]
    if len(packers) > 1:
        return "chunks that are packed twice"
    place = packers[0] if packers else len(filters)
    if _SHUFFLE in filters[place:]:
        return "chunks that are shuffled once they are packed"
    size = math.prod(data.chunks) * data.dtype.itemsize
    if _LZF in filters and _lzf_buffer(data, filters.index(_LZF)) not in (0, size):
        return "chunks that lzf unpacks again and again, for want of room"
    most = 2 * size + _STEP
    is_events = is_ecf(data)
    found: list[str] = []
    with path.open("rb") as file:

        def look(chunk: h5py.h5d.StoreInfo) -> bool | None:
            def read(size: int) -> bytes:
                # Where something stands before the file, versions of HDF5 differ in where they count from.
                if data.file.userblock_size:
                    return data.id.read_direct_chunk(chunk.chunk_offset)[1][:size]
                return os.pread(file.fileno(), size, chunk.byte_offset)

            active = [0 if chunk.filter_mask >> i & 1 else number for i, number in enumerate(filters)]
            before, behind = (
                _CHECKSUM_BYTES * part.count(_FLETCHER32) for part in (active[:place], active[place:])
            )
            packed: int = chunk.size - behind
            fits = 0 <= packed <= most
            # Events in ECF are unpacked by ourselves.
            if fits and not is_events:
                unpacked = _unpacked_size(sum(active[place : place + 1]), read, packed, most)
                fits = unpacked is None or size + before <= unpacked <= most
            if not fits:
                found.append(f"a chunk of {chunk.size} bytes that does not unpack to the {size} of a chunk")
            return True if found else None

        data.id.chunk_iter(look)
    return found[0] if found else ""


def _lzf_buffer(data: h5py.Dataset, place: int) -> int:
    """Bytes that its filter begins with; too small a buffer grows step by step."""
    options: tuple[int, ...] = data.id.get_create_plist().get_filter(place)[2]
    return options[2] if len(options) > 2 else 0


def _unpacked_size(number: int, read: Callable[[int], bytes], size: int, most: int) -> int | None:
    """How much a chunk of `size` bytes unpacks to, or something above `most`; 0 where it leads beyond itself.

    None where it is damaged, which HDF5 finds by itself, and what is beside it can be read.
    """
    if number == _BLOSC:
        head = read(min(size, 16))
        unpacked, end = struct.unpack_from("<I4xI", head.ljust(16, b"\0"), 4)
        return 0 if len(head) < 16 or end > size else unpacked or None
    if number == _LZF:
        return _lzf_size(np.frombuffer(read(size), np.uint8), most)
    return _gzip_size(read(size), most) if number == _GZIP else size


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


def _gzip_size(packed: bytes, most: int) -> int | None:
    stream, count = zlib.decompressobj(), 0
    try:
        while count <= most and (part := stream.decompress(packed, _STEP)):
            count += len(part)
            packed = stream.unconsumed_tail
    except zlib.error:
        return None
    return count if stream.eof or count > most else None
