"""Encoder of Prophesee's ECF chunks, by https://github.com/prophesee-ai/hdf5_ecf."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np

from crossspec_ros.events.batch import EventBatch
from crossspec_ros.recordings.ecf import FILTER

CHUNK = 1000
"""Events of a chunk."""


def _runs(values: np.ndarray) -> list[tuple[int, int]]:
    """Values and how often each is repeated; 65535 times at most."""
    cuts = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    return [(int(values[a]), b - a) for a, b in pairwise(cuts)]


def _repeated(value: int, count: int, bits: int, kind: str) -> bytes:
    """A value above `bits` bits of how often it is repeated; all 1: in a word of its own."""
    most = (1 << bits) - 1
    own_word = count.to_bytes(2, "little") if count >= most else b""
    return struct.pack(f"<{kind}", value << bits | min(count, most)) + own_word


def _times(t: np.ndarray) -> bytes:
    out, now = struct.pack("<Q", t[0]), int(t[0])
    for value, count in _runs(t):
        step, now = value - now, value
        if step >= 15:
            while step:
                out, step = out + bytes([0xF0 | step & 15]), step >> 4
        out += _repeated(step, count, 4, "B")
    return out


def _packed(array: np.ndarray, width: int) -> bytes:
    """Four values of `width` bits in three words, the second and the third value in two parts."""
    part, kind = width // 3, {12: "<3H", 24: "<3I"}[width]
    values, out = [*array.tolist(), *[0] * (-len(array) % 4)], b""
    for a, b, c, d in zip(*[iter(values)] * 4, strict=True):
        first = a << part | b % (1 << part)
        second = b >> part << 2 * part | c % (1 << 2 * part)
        out += struct.pack(kind, first, second, c >> 2 * part << 3 * part | d)
    return out


def _masked(x: np.ndarray) -> bytes:
    out, i = b"", 0
    while i < len(x):
        base, mask, i = int(x[i]), 0, i + 1
        last = base
        while i < len(x) and last < x[i] <= base + 5:
            last = int(x[i])
            mask, i = mask | 16 >> (last - base - 1), i + 1
        out += struct.pack("<H", base << 5 | mask)
    return out


def encode_ecf(batch: EventBatch, mode: int) -> bytes:
    """Return a chunk with all packed (2), with x and p packed (1), or nothing (0)."""
    x, y, p = (values.astype(np.int64) for values in (batch.x, batch.y, batch.p))
    out = struct.pack("<I", len(x) << 2 | mode) + _times(batch.t)
    if mode == 2:
        return out + _packed(y << 12 | x << 1 | p, 24)
    out += b"".join(_repeated(value, count, 5, "H") for value, count in _runs(y))
    if mode == 1:
        return out + _packed(x << 1 | p, 12)
    return out + _masked(x) + b"".join(_repeated(value, count, 7, "B") for value, count in _runs(p))


def write_ecf(path: Path, batch: EventBatch) -> Path:
    """Write an HDF5 file with chunks of all modes in turn."""
    kind = np.dtype({"names": list("xypt"), "formats": ["<u2", "<u2", "<i2", "<i8"], "offsets": [0, 2, 4, 8]})
    with h5py.File(path, "w") as file:
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_chunk((CHUNK,))
        plan.set_filter(FILTER, h5py.h5z.FLAG_OPTIONAL)
        space = h5py.h5s.create_simple((len(batch),))
        data = h5py.h5d.create(file.create_group("CD").id, b"events", h5py.h5t.py_create(kind), space, plan)
        for i, start in enumerate(range(0, len(batch), CHUNK)):
            data.write_direct_chunk((start,), encode_ecf(batch[start : start + CHUNK], i % 3))
        file.attrs["geometry"] = "1280x720"
    return path
