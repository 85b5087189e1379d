"""Decoder of Prophesee's Event Compression Format, the filter 0x8ECF of its HDF5 files.

A chunk is, little-endian: uint32 `count << 2 | all_packed << 1 | x_p_packed`; uint64 time of the first event
in us; the times; then, all packed, 24 bits `y << 12 | x << 1 | p` for each event; otherwise the y and,
packed, 12 bits `x << 1 | p` for each event, or else the x and the p.

- Times, bytes `step << 4 | repeats`; repeats of 15 stand for the uint16 that follows. Bytes with a step of 15
  hold no event: their lower halves, the lowest first, are a longer step.
- y, uint16 `y << 5 | repeats`; repeats of 31 stand for the uint16 that follows.
- x, uint16 `x << 5 | mask`, with a bit for each of the five pixels to the right, the nearest on top.
- p, bytes `p << 7 | repeats`; repeats of 127 stand for the uint16 that follows.
- Packed values are four in three words of 16 or 32 bits: the second and the third value are in two parts, the
  lower one at the end of a word and the upper one at the start of the next.

Source: https://github.com/prophesee-ai/hdf5_ecf.
"""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

from crossspec_ros.compiled import compiled

FILTER = 0x8ECF


def filters_of(data: h5py.Dataset) -> list[int]:
    """Return the registered numbers of the filters that a data set is packed with."""
    packing = data.id.get_create_plist()
    return [packing.get_filter(i)[0] for i in range(packing.get_nfilters())]


def is_ecf(data: h5py.Dataset) -> bool:
    """Return whether a data set holds events that are packed with ECF and nothing else."""
    return filters_of(data) == [FILTER] and data.ndim == 1 and set("xypt") <= set(data.dtype.names or ())


class EcfDataset:
    """Events (N,) with fields x, y, p and t, read by slices like a data set of h5py."""

    def __init__(self, data: h5py.Dataset) -> None:
        self._data, self._chunk = data, int(data.chunks[0])
        self._last: tuple[int, np.ndarray] = (-1, np.empty(0, data.dtype))

    def __getitem__(self, where: slice) -> np.ndarray:
        """Decode a slice; raises ValueError or OSError for a damaged chunk."""
        start, stop, _ = where.indices(self._data.shape[0])
        parts = [np.empty(0, self._data.dtype)]
        for index in range(start // self._chunk, -(-stop // self._chunk)):
            first = index * self._chunk
            parts.append(self._read(index)[max(start - first, 0) : stop - first])
        return np.concatenate(parts)

    def _read(self, index: int) -> np.ndarray:
        if self._last[0] != index:
            first = index * self._chunk
            mask, data = self._data.id.read_direct_chunk((first,))
            wanted = min(self._chunk, self._data.shape[0] - first)
            events = np.frombuffer(data, self._data.dtype) if mask else decode_ecf(data, self._chunk)
            if len(events) < wanted:
                raise ValueError(f"a chunk has {len(events)} of {wanted} events")
            self._last = index, events[:wanted]
        return self._last[1]


def decode_ecf(data: bytes, most: int) -> np.ndarray:
    """Decode a chunk to events (N,), N up to `most`, with fields x, y, p and t; ValueError for damage."""
    count = int.from_bytes(data[:4], "little") >> 2
    if len(data) < 12 or count > most:
        raise ValueError(f"a chunk of {len(data)} bytes states {count} events, of up to {most}")
    t, x, y, p = (np.empty(count, kind) for kind in (np.int64, np.uint16, np.uint16, np.uint16))
    if not _decode(np.frombuffer(data, np.uint8), t, x, y, p):
        raise ValueError("a chunk of ECF is damaged")
    events = np.empty(count, [("x", "<u2"), ("y", "<u2"), ("p", "<i2"), ("t", "<i8")])
    events["x"], events["y"], events["p"], events["t"] = x, y, p, t
    return events


_BYTES = "Array(uint8, 1, 'C', readonly=True)"


@compiled(f"int64({_BYTES}, int64, int64)")
def _word(data: np.ndarray, place: int, size: int) -> int:
    """Read a number of `size` bytes; zeros follow the data."""
    value: Any = np.int64(0)
    for i in range(size):
        if place + i < data.size:
            value |= np.int64(data[place + i]) << (8 * i)
    return value


@compiled(f"int64({_BYTES}, int64, int64, int64)")
def _packed(data: np.ndarray, place: int, i: int, size: int) -> int:
    """Read the i-th packed number; four numbers of 6 * `size` bits share three words of `size` bytes."""
    word, part = place + i // 4 * 3 * size, 2 * size
    a, b, c = _word(data, word, size), _word(data, word + size, size), _word(data, word + 2 * size, size)
    if i % 4 == 0:
        return a >> part
    if i % 4 == 1:
        return a & ((1 << part) - 1) | b >> 2 * part << part
    if i % 4 == 2:
        return b & ((1 << 2 * part) - 1) | c >> 3 * part << 2 * part
    return c & ((1 << 3 * part) - 1)


@compiled(f"int64({_BYTES}, int64, uint16[::1], int64, int64)")
def _runs(data: np.ndarray, place: int, column: np.ndarray, size: int, bits: int) -> int:
    """Fill a column from words of `size` bytes: a value, and in the lower `bits` its repeats.

    Return the end of the words, -1 for damage.
    """
    most = (1 << bits) - 1
    done = 0
    while done < column.size:
        if place + size > data.size:
            return -1
        word = _word(data, place, size)
        place += size
        repeats = word & most
        if repeats == most:
            repeats = _word(data, place, 2)
            place += 2
        if repeats > column.size - done:
            return -1
        column[done : done + repeats] = word >> bits
        done += repeats
    return place


@compiled(f"boolean({_BYTES}, int64[::1], uint16[::1], uint16[::1], uint16[::1])")
def _decode(data: np.ndarray, t: np.ndarray, x: np.ndarray, y: np.ndarray, p: np.ndarray) -> bool:
    """Fill t, x, y and p from a chunk; False for damage."""
    count, flags = t.size, data[0] & 3
    place: Any = 12
    time: Any = _word(data, 4, 8)
    value: Any = np.int64(0)
    repeats: Any = np.int64(0)
    step: Any = np.int64(0)
    done = 0
    shift = 0
    while done < count:
        if place >= data.size:
            return False
        value = np.int64(data[place])
        place += 1
        if value >> 4 == 15:
            if shift > 60:
                return False
            step |= (value & 15) << shift
            shift += 4
            continue
        time += step + (value >> 4)
        step, shift = np.int64(0), 0
        repeats = value & 15
        if repeats == 15:
            repeats = _word(data, place, 2)
            place += 2
        if repeats > count - done:
            return False
        t[done : done + repeats] = time
        done += repeats
    if flags & 2:
        for i in range(count):
            value = _packed(data, place, i, 4)
            x[i], y[i], p[i] = value >> 1 & 0x7FF, value >> 12 & 0x7FF, value & 1
        return place + (count + 3) // 4 * 12 <= data.size
    place = _runs(data, place, y, 2, 5)
    if place < 0:
        return False
    if flags & 1:
        for i in range(count):
            value = _packed(data, place, i, 2)
            x[i], p[i] = value >> 1, value & 1
        return place + (count + 3) // 4 * 6 <= data.size
    done = 0
    while done < count:
        if place + 2 > data.size:
            return False
        value = _word(data, place, 2)
        place += 2
        x[done] = value >> 5
        done += 1
        for i in range(5):
            if value & (16 >> i) and done < count:
                x[done] = (value >> 5) + i + 1
                done += 1
    place = _runs(data, place, p, 1, 7)
    return 0 <= place <= data.size
