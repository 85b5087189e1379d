"""Rows of an HDF5 data set, read a block at a time: a chunk is unpacked once for all of a block."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import h5py
import numpy as np

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.recordings.ecf import filters_of
from crossspec_ros.recordings.hdf5_file import CHUNK_COPIES, Hdf5File, chunk_bytes, row_chunks, whole_rows

_BLOCK_BYTES, _KEPT_BYTES = 64 << 20, 8 << 20
"""Of rows that are not packed, and of all blocks that are kept where they are small."""
_PICTURE_COPIES, _TOUCHED_BYTES = 4, 5000
"""Of a picture beside the block it is of, and what HDF5 keeps for each chunk that a read touches."""
_MOST_ANEW, _MOST_TIMES_ANEW, _UNPACKED_SPEED = 512 << 20, 20, 20
"""Bytes that may be unpacked again, or times the file's own, as blocks end within chunks or rows are asked
for in another order; some 150 MB take a second, and so many times as much where nothing is packed."""


def room_for(file: Hdf5File, data: h5py.Dataset, count: int, picture: int) -> int:
    """Bytes that may be held of pictures, each of which has `picture` bytes in `count` chunks.

    Raises InputError where that is less than one.
    """
    size = chunk_bytes(data)
    held = max(CHUNK_COPIES * size, _PICTURE_COPIES * picture) + _TOUCHED_BYTES * count
    if picture > file.room - held:
        name = str(data.name)[1:]
        raise InputError(
            f"'{file.path}' has '{name}' of {picture >> 20} MB in {count} chunks of {size >> 20} MB, for "
            f"which there is no room{file.beside}: store it in other ones, as `h5repack -l {name}:CHUNK="
            f"{whole_rows(data)}` does"
        )
    return file.room - held


class RowBlocks:
    """Rows of a data set that `Hdf5File.pictures` gave, by their index."""

    def __init__(self, file: Hdf5File, data: h5py.Dataset, order: np.ndarray) -> None:
        """`order` (N,) has the indices of the rows as they will be asked for.

        Raises InputError where there is no room to hold them, or chunks would be unpacked again and again.
        """
        self._data = data
        name = str(data.name)[1:]
        size, row = chunk_bytes(data), max(1, math.prod(data.shape[1:]) * data.dtype.itemsize)
        room = room_for(file, data, row_chunks(data), row)
        is_packed = bool(filters_of(data))
        most = room if is_packed else min(room, _BLOCK_BYTES)
        # What lies in no chunks is read where it lies.
        self._chunk_rows = data.chunks[0] if data.chunks else 1
        self._rows = max(1, min(self._chunk_rows, most // row))
        # No block goes beyond a chunk, whose damage would cost it what lies in the next.
        self._blocks = -(-self._chunk_rows // self._rows)
        self._most_kept = max(1, _KEPT_BYTES // (self._rows * row))
        self._kept: dict[int, np.ndarray | str] = {}
        kept = lru_cache(self._most_kept)(lambda block: None)
        for block in self._block(order).tolist():
            kept(block)
        anew = kept.cache_info().misses - len(np.unique(order // self._chunk_rows))
        total = anew * row_chunks(data) * size
        if total > max(_MOST_ANEW, _MOST_TIMES_ANEW * file.size) * (1 if is_packed else _UNPACKED_SPEED):
            raise InputError(
                f"'{file.path}' has '{name}' in such chunks and so far from the order of its times that "
                f"{total >> 20} MB would be read again: sort it by time, and store it in smaller chunks, as "
                f"`h5repack -l {name}:CHUNK={whole_rows(data)}` does"
            )

    def __getitem__(self, row: int) -> np.ndarray:
        """A row, a part of the block that is kept; raises OSError where a chunk of it is damaged."""
        number = self._block(row)
        # The latest stands last.
        block = self._kept.pop(number, None)
        if block is None:
            # Before it is read, so that there is room for it.
            if len(self._kept) == self._most_kept:
                del self._kept[next(iter(self._kept))]
            block = self._read(number)
        self._kept[number] = block
        if isinstance(block, str):
            raise OSError(block)
        return block[row % self._chunk_rows % self._rows]

    def _block(self, row: Any) -> Any:
        """The number of the block that a row lies in, or of each of an array of them."""
        return row // self._chunk_rows * self._blocks + row % self._chunk_rows // self._rows

    def _read(self, block: int) -> np.ndarray | str:
        """The block, or why it cannot be read, which all of its rows would ask anew."""
        chunk, part = divmod(block, self._blocks)
        start = chunk * self._chunk_rows + part * self._rows
        rows: np.ndarray
        try:
            rows = self._data[start : min(start + self._rows, (chunk + 1) * self._chunk_rows)]
        except (OSError, ValueError, RuntimeError, MemoryError) as error:
            return one_line(error)
        return rows
