"""Prophesee's ECF: what the decoder makes of chunks, and of the files that hold them.

The decoder was compared with the codec of https://github.com/prophesee-ai/hdf5_ecf on 3,000 random streams.
"""

from __future__ import annotations

import struct
from itertools import pairwise

import h5py
import numpy as np
import pytest
from event_samples import assert_equal, batches, random_batch
from hypothesis import given
from hypothesis import strategies as st
from recording_samples import played

from crossspec_ros.recordings import hdf5
from crossspec_ros.recordings.ecf import FILTER, decode_ecf
from crossspec_ros.recordings.survey import survey

CHUNK = 1000


def runs(values):
    """Values and how often each is repeated; 65535 times at most."""
    cuts = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    return [(int(values[a]), b - a) for a, b in pairwise(cuts)]


def repeated(value, count, bits, kind):
    """A value above `bits` bits of how often it is repeated; all 1: in a word of its own."""
    most = (1 << bits) - 1
    own_word = count.to_bytes(2, "little") if count >= most else b""
    return struct.pack(f"<{kind}", value << bits | min(count, most)) + own_word


def times(t):
    out, now = struct.pack("<Q", t[0]), int(t[0])
    for value, count in runs(t):
        step, now = value - now, value
        if step >= 15:
            while step:
                out, step = out + bytes([0xF0 | step & 15]), step >> 4
        out += repeated(step, count, 4, "B")
    return out


def packed(values, width):
    """Four values of `width` bits in three words, the second and the third value in two parts."""
    part, kind = width // 3, {12: "<3H", 24: "<3I"}[width]
    values, out = [*values.tolist(), *[0] * (-len(values) % 4)], b""
    for a, b, c, d in zip(*[iter(values)] * 4, strict=True):
        first = a << part | b % (1 << part)
        second = b >> part << 2 * part | c % (1 << 2 * part)
        out += struct.pack(kind, first, second, c >> 2 * part << 3 * part | d)
    return out


def masked(x):
    out, i = b"", 0
    while i < len(x):
        base, mask, i = int(x[i]), 0, i + 1
        last = base
        while i < len(x) and last < x[i] <= base + 5:
            last = int(x[i])
            mask, i = mask | 16 >> (last - base - 1), i + 1
        out += struct.pack("<H", base << 5 | mask)
    return out


def encode(batch, mode):
    """A chunk with all packed (2), with x and p packed (1), or nothing (0)."""
    x, y, p = (values.astype(np.int64) for values in (batch.x, batch.y, batch.p))
    out = struct.pack("<I", len(x) << 2 | mode) + times(batch.t)
    if mode == 2:
        return out + packed(y << 12 | x << 1 | p, 24)
    out += b"".join(repeated(value, count, 5, "H") for value, count in runs(y))
    if mode == 1:
        return out + packed(x << 1 | p, 12)
    return out + masked(x) + b"".join(repeated(value, count, 7, "B") for value, count in runs(p))


def decoded(batch, mode):
    events = decode_ecf(encode(batch, mode), CHUNK)
    return all(np.array_equal(events[name], getattr(batch, name)) for name in "txyp")


@given(batches(width=1280, height=720), st.integers(0, 2))
def test_chunks_decode(batch, mode):
    if len(batch):
        assert decoded(batch, mode)


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_a_cut_or_bent_chunk_is_never_read_past_its_end(mode):
    data = encode(random_batch(100, duration_us=5000, width=1280, height=720), mode)
    for end in range(len(data)):
        with pytest.raises(ValueError, match="chunk"):
            decode_ecf(data[:end], CHUNK)
    rng = np.random.default_rng(mode)
    for _ in range(300):
        bent = bytearray(data)
        bent[rng.integers(len(data))] ^= int(rng.integers(1, 256))
        try:
            count = len(decode_ecf(bytes(bent), CHUNK))
        except ValueError:
            continue
        assert count <= CHUNK


def write_ecf(path, batch):
    kind = np.dtype({"names": list("xypt"), "formats": ["<u2", "<u2", "<i2", "<i8"], "offsets": [0, 2, 4, 8]})
    with h5py.File(path, "w") as file:
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_chunk((CHUNK,))
        plan.set_filter(FILTER, h5py.h5z.FLAG_OPTIONAL)
        space = h5py.h5s.create_simple((len(batch),))
        data = h5py.h5d.create(file.create_group("CD").id, b"events", h5py.h5t.py_create(kind), space, plan)
        for i, start in enumerate(range(0, len(batch), CHUNK)):
            data.write_direct_chunk((start,), encode(batch[start : start + CHUNK], i % 3))
        file.attrs["geometry"] = "1280x720"
    return path


def test_a_file_plays(tmp_path):
    batch = random_batch(4500, 1, 3 << 24, 300_000, 1280, 720)
    heard, _ = played(write_ecf(tmp_path / "recording.hdf5", batch))
    assert_equal(heard, batch)


def test_a_damaged_chunk_costs_only_its_block(tmp_path, monkeypatch):
    monkeypatch.setattr(hdf5, "BLOCK", CHUNK)
    path = write_ecf(tmp_path / "recording.hdf5", random_batch(4500, 1, 3 << 24, 300_000, 1280, 720))
    with h5py.File(path) as file:
        chunk = file["CD/events"].id.get_chunk_info(2)
    data = bytearray(path.read_bytes())
    data[chunk.byte_offset : chunk.byte_offset + chunk.size] = bytes(chunk.size)
    path.write_bytes(data)
    assert survey(path)["topics"][0]["events"] == 3500
