"""`crossspec bench events` compares decoders of the same events, and its figures are complete."""

from __future__ import annotations

import numpy as np
import pytest
from crossspec_lab.bench.event_decoders import STAGES, decoder_of, event_decoders
from crossspec_lab.bench.event_streams import ENCODERS, batches, synthetic
from crossspec_lab.bench.events import measure, peak_of_window, tables


@pytest.mark.parametrize("encoding", ENCODERS)
def test_synthetic_streams_decode_to_drawn_events(encoding):
    stream = synthetic(encoding, rate=1.0, seconds=0.02)
    decoder = decoder_of(stream)
    decoded = [decoder.decode(packet.payload, packet.time_base) for packet in stream.packets]
    drawn = [batch for _, batch in batches(1.0, 0.02, along_rows=encoding != "libcaer_cmp")]
    assert [len(batch) for batch in decoded] == [1000] * 20
    for ours, expected in zip(decoded, drawn, strict=True):
        for field in ("x", "y", "p"):
            np.testing.assert_array_equal(getattr(ours, field), getattr(expected, field))
        np.testing.assert_array_equal((ours.t - expected.t) % (1 << 24), 0)
    assert not decoder.damage


@pytest.mark.parametrize("encoding", ["evt3", "dvs"])
def test_event_decoders_process_all_events(encoding):
    stream = synthetic(encoding, rate=1.0, seconds=0.01)
    compared = event_decoders(stream).items()
    counts = {(n, stage): decode(stream, stage) for n, decode in compared for stage in STAGES}
    assert set(counts.values()) == {10_000}
    assert len(counts) == 3 * (3 if encoding == "evt3" else 1)


@pytest.mark.nightly
def test_measure_covers_all_encodings():
    figures = measure(repeats=1, rates=(0.05,), window_rate=0.5) | {"ros": [], "ros_highest_mev_s": 0.0}
    assert list(figures["encodings"]) == ["evt3", "libcaer_cmp", "libcaer", "mono", "dvs"]
    for found in figures["encodings"].values():
        for row in found["streams"]["0.05 Mev/s"].values():
            assert all(row[f"{stage}_mev_s"] > 0 for stage in STAGES) and row["peak_mb"] >= 0
        assert found["streams"]["0.05 Mev/s"]["ours"]["decode_mev_s"] == found["decode_mev_s"]
    assert "".join(map(str, tables(figures))).count("dv-processing") == 1


@pytest.mark.nightly
def test_window_needs_less_memory_than_its_events():
    # Five million events are 65 MB as arrays.
    assert peak_of_window(5.0) < 15
