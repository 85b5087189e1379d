"""AEDAT 3.1 files, made by its specification."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from event_files import check_info, clustered, read

from crossspec_ros.errors import InputError
from crossspec_ros.recordings.aedat3 import Aedat3Events
from crossspec_ros.recordings.recording import open_here

HEADER = b"#!AER-DAT3.1\r\n#Format: RAW\r\n#Source 1: %s\r\n#Start-Time: 2016-01-01\r\n#!END-HEADER\r\n"


def packet(kind, body, size, overflows=0, number=None):
    number = len(body) // size if number is None else number
    return struct.pack("<2h6i", kind, 1, size, 4, overflows, number, number, number) + body


def polarity(events):
    """Packets of 100 events, each followed by one of another kind, and with an event that is not valid."""
    data = b""
    for start in range(0, len(events), 100):
        part = events[start : start + 100]
        overflows = part[0][0] >> 31
        part = [event for event in part if event[0] >> 31 == overflows]
        rest = [event for event in events[start : start + 100] if event[0] >> 31 != overflows]
        for group in filter(None, (part, rest)):
            body = b"".join(
                struct.pack("<Ii", x << 17 | y << 2 | p << 1 | 1, t & 0x7FFFFFFF) for t, x, y, p in group
            )
            body += struct.pack("<Ii", 5 << 17, 7)
            data += packet(1, body, 8, group[0][0] >> 31) + packet(2, bytes(72), 36)
    return data


@pytest.fixture
def events():
    return clustered(np.random.default_rng(3), 1000, (1 << 31) - 30_000, 240, 180)


@pytest.mark.parametrize(("sensor", "size"), [(b"DAVIS240C", "240x180"), (b"Other", "240x180")])
def test_events(tmp_path, events, sensor, size):
    path = tmp_path / "ride.aedat"
    path.write_bytes(HEADER % sensor + polarity(events))
    assert events[0][0] < 1 << 31 < events[-1][0]
    source = Aedat3Events(path)
    assert read(source) == (events, None)
    assert (source.start_us, source.end_us) == (events[0][0], events[-1][0])
    assert check_info(path, events) == f"AEDAT 3.1, events alone, {size}"


def test_what_is_damaged_is_told(tmp_path, events):
    path = tmp_path / "ride.aedat"
    data = HEADER % b"DAVIS240C" + polarity(events)
    for bent, damage in (
        (data[:-500], "cut packets 1"),
        (data[:-10] + b"\x01", "cut packets 1"),
        (data + packet(1, bytes(80), 80), "bytes behind a broken packet 108"),
        (data + packet(7, b"", -3, number=1) + data, "bytes behind a broken packet "),
        (data + packet(1, b"", 8, number=1 << 30), "cut packets 1"),
        (data + packet(1, struct.pack("<Ii", 9000 << 17 | 1, 5), 8), "events outside sensor 1"),
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
        (HEADER[:60], "has a header without an end"),
        (HEADER % b"DVS128", "has no events"),
        (HEADER % b"DVS128" + bytes(28), "has no events"),
    ],
)
def test_other_files_are_named(tmp_path, data, sentence):
    (tmp_path / "x.aedat").write_bytes(data)
    with pytest.raises(InputError, match=rf"x\.aedat' {sentence}"):
        open_here(tmp_path / "x.aedat")
