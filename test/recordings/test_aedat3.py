"""AEDAT 3.1 files, made by its specification."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from recording_samples import AEDAT3_HEADER, aedat3_packet, aedat3_packets, check_info, clustered, read

from crossspec_ros.errors import InputError
from crossspec_ros.recordings.aedat3 import Aedat3Events
from crossspec_ros.recordings.recording import open_here


@pytest.fixture
def events():
    return clustered(np.random.default_rng(3), 1000, (1 << 31) - 30_000, 240, 180)


@pytest.mark.parametrize(("sensor", "size"), [(b"DAVIS240C", "240x180"), (b"Other", "240x180 assumed")])
def test_events(tmp_path, events, sensor, size):
    path = tmp_path / "ride.aedat"
    path.write_bytes(AEDAT3_HEADER % sensor + aedat3_packets(events))
    assert events[0][0] < 1 << 31 < events[-1][0]
    source = Aedat3Events(path)
    assert read(source) == (events, None)
    assert (source.start_us, source.end_us) == (events[0][0], events[-1][0])
    assert check_info(path, events) == f"AEDAT 3.1, events alone, {size}"


def test_what_is_damaged_is_told(tmp_path, events):
    path = tmp_path / "ride.aedat"
    data = AEDAT3_HEADER % b"DAVIS240C" + aedat3_packets(events)
    for bent, damage in (
        (data[:-500], "cut packets 1"),
        (data[:-10] + b"\x01", "cut packets 1"),
        (data + aedat3_packet(1, bytes(80), 80), "bytes behind a broken packet 108"),
        (data + aedat3_packet(7, b"", -3, number=1) + data, "bytes behind a broken packet "),
        (data + aedat3_packet(1, b"", 8, number=1 << 30), "cut packets 1"),
        (data + aedat3_packet(1, struct.pack("<Ii", 9000 << 17 | 1, 5), 8), "events outside sensor 1"),
    ):
        path.write_bytes(bent)
        kept, told = read(Aedat3Events(path))
        assert kept == events[: len(kept)] and len(kept) > 900 and damage in told


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"#!AER-DAT2.0\r\n" + bytes(80), r"is AEDAT 2\.0, and 3\.1 and 4 are read: open it in .* DV"),
        (b"#!AER-DAT4.0\r\n", r"is AEDAT 4\.0, .* rename it to end in \.aedat4"),
        (b"", "is AEDAT 1 or no AEDAT file"),
        (AEDAT3_HEADER[:60], "has a header without an end"),
        (AEDAT3_HEADER % b"DVS128", "has no events"),
        (AEDAT3_HEADER % b"DVS128" + bytes(28), "has no events"),
    ],
)
def test_other_files_are_named(tmp_path, data, sentence):
    (tmp_path / "x.aedat").write_bytes(data)
    with pytest.raises(InputError, match=rf"x\.aedat' {sentence}"):
        open_here(tmp_path / "x.aedat")
