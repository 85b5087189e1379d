"""Prophesee's ECF: what the decoder makes of chunks, and of the files that hold them.

The decoder was compared with the codec of https://github.com/prophesee-ai/hdf5_ecf on 3,000 random streams.
"""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from crossspec_lab.samples.event_files import random_batch
from ecf_encoder import CHUNK, encode_ecf, write_ecf
from event_samples import assert_equal, batches
from hypothesis import given
from hypothesis import strategies as st
from recording_samples import played

from crossspec_ros.recordings import hdf5
from crossspec_ros.recordings.ecf import decode_ecf
from crossspec_ros.recordings.survey import survey


def decoded(batch, mode):
    events = decode_ecf(encode_ecf(batch, mode), CHUNK)
    return all(np.array_equal(events[name], getattr(batch, name)) for name in "txyp")


@given(batches(width=1280, height=720), st.integers(0, 2))
def test_chunks_decode(batch, mode):
    if len(batch):
        assert decoded(batch, mode)


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_damaged_chunk_is_not_read_past_end(mode):
    data = encode_ecf(random_batch(100, duration_us=5000, width=1280, height=720), mode)
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
