"""Prophesee's `.raw` and `.dat` files against decoders that read them word by word."""

from __future__ import annotations

import struct
import subprocess
from contextlib import closing

import numpy as np
import pytest
from crossspec_lab.evt3_encoder import encode_evt3
from crossspec_lab.samples.event_files import HEADERS, batch_of, encode_dat, encode_raw
from recording_samples import check_info, clustered, decode_raw, read
from refusals import refused

from crossspec_ros.events.evt3 import Evt3Decoder
from crossspec_ros.recordings import prophesee
from crossspec_ros.recordings.prophesee import DatEvents, RawEvents
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.recordings.survey import survey


@pytest.fixture
def events():
    return clustered(np.random.default_rng(1), 3000, 5_000_000)


def saved(path, data):
    path.write_bytes(data)
    return path


def evt3(events):
    """EVT3 restarts its rollovers with the file, so times are less a multiple of 2**24 us."""
    data = HEADERS["EVT3"] + encode_evt3(batch_of(*np.array(events).T))
    start = events[0][0] >> 24 << 24
    return data, [[t - start, *rest] for t, *rest in events]


@pytest.mark.parametrize("block", [prophesee._RAW_BLOCK, 4096])
@pytest.mark.parametrize("encoding", ["EVT2", "EVT21", "EVT21 legacy"])
def test_evt2_files_hold_what_their_words_say(tmp_path, events, encoding, block, monkeypatch):
    monkeypatch.setattr(prophesee, "_RAW_BLOCK", block)
    # Over the wrap of 34 bits of time.
    events = [[t + (1 << 34) - 6_000_000, *rest] for t, *rest in events]
    data = encode_raw(encoding, events)
    assert [list(event) for event in decode_raw(encoding, data)] == events
    source = RawEvents(saved(tmp_path / "ride.raw", data))
    assert read(source) == (events, None)
    name = check_info(tmp_path / "ride.raw", events)
    assert name == f"Prophesee raw, {encoding.split()[0]}, 640x480"


@pytest.mark.parametrize("block", [prophesee._RAW_BLOCK, 2048])
def test_evt3_times_go_on_over_rollovers(tmp_path, events, block, monkeypatch):
    monkeypatch.setattr(prophesee, "_RAW_BLOCK", block)
    # Twice over the wrap of 24 bits of time.
    events = [[t + 9_000_000 * (index // 700), *rest] for index, (t, *rest) in enumerate(events)]
    assert events[-1][0] - events[0][0] > 2 << 24
    data, expected = evt3(events)
    source = RawEvents(saved(tmp_path / "ride.raw", data))
    assert read(source) == (expected, None)
    assert check_info(tmp_path / "ride.raw", expected) == "Prophesee raw, EVT3, 640x480"


def test_raw_ends_with_its_last_event(tmp_path, events):
    data, expected = evt3(events)
    still = struct.pack("<2H", 0x8FFF, 0x6000) * 2000
    with closing(open_here(saved(tmp_path / "still.raw", data + still))) as recording:
        stamps_us = [message.stamp_ns // 1000 for message in recording.messages()]
    assert recording.start_ns == stamps_us[0] * 1000 and stamps_us[0] == expected[0][0]
    assert stamps_us[-1] == expected[-1][0] > stamps_us[-2]


def test_the_first_pass_reads_nothing_twice(tmp_path, events, monkeypatch):
    monkeypatch.setattr(prophesee, "_RAW_BLOCK", 512)
    blocks = []
    decode = Evt3Decoder.decode
    monkeypatch.setattr(
        Evt3Decoder, "decode", lambda self, data: (blocks.append(len(data)), decode(self, data))[1]
    )
    path = saved(tmp_path / "ride.raw", evt3(events)[0])
    with closing(open_here(path)) as recording:
        assert sum(blocks) < path.stat().st_size / 2, "opening reads the begin only"
        first = list(recording.messages())
        assert sum(blocks) == path.stat().st_size - len(HEADERS["EVT3"])
        assert list(recording.messages()) == first


@pytest.mark.parametrize("block", [prophesee._RAW_BLOCK, 4, 8])
def test_padding_zeros_are_no_events(tmp_path, events, block, monkeypatch):
    """However the file is cut into blocks."""
    data = encode_raw("EVT2", events)
    at = data.index(b"% end\n") + 6 + 400
    padded = data[:at] + bytes(4 * 50) + data[at:] + bytes(4 * 50)
    monkeypatch.setattr(prophesee, "_RAW_BLOCK", block)
    assert read(RawEvents(saved(tmp_path / "padded.raw", padded))) == (events, None)


def test_damaged_time_shifts_no_evt2_events(tmp_path, events):
    data = bytearray(encode_raw("EVT2", events))
    start = data.index(b"% end\n") + 6
    words = np.frombuffer(data, "<u4", offset=start)
    at = np.flatnonzero(words >> 28 == 8)[20]
    struct.pack_into("<I", data, start + 4 * int(at), 0x8FFFFFFF)
    kept, _ = read(RawEvents(saved(tmp_path / "bent.raw", bytes(data))))
    assert kept[-500:] == events[-500:]


@pytest.mark.parametrize("encoding", ["EVT2", "EVT21", "EVT3"])
def test_damage_costs_only_what_is_damaged(tmp_path, events, encoding):
    data = evt3(events)[0] if encoding == "EVT3" else encode_raw(encoding, events)
    events = events if encoding != "EVT3" else evt3(events)[1]
    torn, damage = read(RawEvents(saved(tmp_path / "torn.raw", data[:-1])))
    assert len(events) - 40 < len(torn) < len(events) and torn == events[: len(torn)]
    assert "'" + str(tmp_path / "torn.raw") + "' could not be decoded (torn words 1)" in damage
    unknown = {"EVT2": b"\0\0\0\x70", "EVT21": b"\0\0\0\0\0\0\0\x70", "EVT3": b"\0\x10"}[encoding]
    kept, damage = read(RawEvents(saved(tmp_path / "bent.raw", data + unknown * 3)))
    assert kept == events and "(unknown words 3)" in damage


@pytest.mark.parametrize(
    ("header", "size"),
    [
        (b"% evt 3.0\n% plugin_name hal_plugin_gen31_evk2\n", "640x480 assumed"),
        (b"% evt 3.0\n% sensor_generation 3.1\n", "640x480 assumed"),
        (b"% evt 3.0\n% plugin_name hal_plugin_genx320\n", "320x320 assumed"),
        (b"% evt 3.0\n% system_ID 49\n", "1280x720 assumed"),
        (b"% format EVT3;height=100;width=200\n% end\n", "200x100"),
        (b"% evt 3.0\n% width 200\n% height 100\n", "200x100"),
    ],
)
def test_header_sets_the_size(tmp_path, header, size):
    data = encode_evt3(batch_of([5], [6], [7], [1]))
    assert RawEvents(saved(tmp_path / "x.raw", header + data)).format == f"Prophesee raw, EVT3, {size}"


def test_the_remedy_of_an_assumed_size_works(tmp_path):
    times = np.arange(0, 2_000_000, 10_000)
    path = saved(tmp_path / "x.raw", b"% evt 3.0\n" + encode_evt3(batch_of(times, *np.zeros((3, 200), int))))
    finding = next(finding for finding in survey(path)["findings"] if "is assumed" in finding)
    subprocess.run(finding.partition("set it with ")[2], shell=True, check=True, cwd=tmp_path)
    report = survey(path)
    assert report["format"] == "Prophesee raw, EVT3, 640x480" and report["topics"][0]["events"] == len(times)
    assert not any("is assumed" in finding for finding in report["findings"])


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("x.raw", b"", "raw-no-header"),
        ("x.raw", bytes(5000), "raw-no-header"),
        ("x.raw", b"% evt 4.0\n% end\n", "raw-evt4"),
        ("x.raw", b"% format HISTO3D;width=320\n% end\n", "raw-histograms"),
        ("x.raw", HEADERS["EVT3"], "raw-no-events"),
        ("x.raw", HEADERS["EVT2"] + b"\0" * 400, "raw-no-events"),
        ("x.dat", b"hello", "dat-no-header"),
        ("x.dat", encode_dat([]), "dat-no-events"),
        ("x.dat", encode_dat([])[:-1], "dat-type-cut"),
        ("x.dat", b"% Version 1\n\x00\x08" + bytes(80), "dat-version-1"),
        ("x.dat", b"% Data file containing ExtTrigger events.\n\x0e\x08" + bytes(80), "dat-triggers"),
    ],
)
def test_invalid_files_are_refused(tmp_path, name, data, code):
    with refused(code):
        open_here(saved(tmp_path / name, data))


@pytest.mark.parametrize("block", [1_000_000, 100])
def test_dat_files(tmp_path, events, block, monkeypatch):
    monkeypatch.setattr(prophesee, "_DAT_BLOCK", block)
    # Over the wrap of 32 bits of time.
    events = [[t + (1 << 32) - 6_000_000, *rest] for t, *rest in events]
    source = DatEvents(saved(tmp_path / "ride.dat", encode_dat(events)))
    assert read(source) == (events, None)
    assert check_info(tmp_path / "ride.dat", events) == "Prophesee dat, version 2, 640x480"
    kept, damage = read(DatEvents(saved(tmp_path / "torn.dat", encode_dat(events)[:-3])))
    assert kept == events[:-1] and "(torn words 1)" in damage
    for x in (1500, 9000):
        bent = encode_dat([*events, [events[-1][0], x, 5, 1]], b"% Version 2\n")
        kept, damage = read(DatEvents(saved(tmp_path / "bent.dat", bent)))
        assert kept == events and "(events outside sensor 1)" in damage


@pytest.mark.parametrize("block", [1_000_000, 100])
def test_damaged_time_costs_dat_one_event(tmp_path, events, block, monkeypatch):
    monkeypatch.setattr(prophesee, "_DAT_BLOCK", block)
    data = bytearray(encode_dat(events))
    start = data.index(b"\x0c\x08") + 2
    data[start + 8 * 1050 + 3] = 0xFF
    kept, damage = read(DatEvents(saved(tmp_path / "bent.dat", bytes(data))))
    assert kept == events[:1050] + events[1051:] and "(damaged times 1)" in damage


def test_dat_events_outside_the_sensor_are_dropped(tmp_path, events, monkeypatch):
    """A block without a single pixel of the sensor, even the first one, does not end the file."""
    monkeypatch.setattr(prophesee, "_DAT_BLOCK", 100)
    for bad in (range(100), range(300, 400)):
        bent = [[t, 700 if i in bad else x, y, p] for i, (t, x, y, p) in enumerate(events)]
        kept, damage = read(DatEvents(saved(tmp_path / "bent.dat", encode_dat(bent))))
        assert kept == [event for i, event in enumerate(events) if i not in bad]
        assert "(events outside sensor 100)" in damage


def test_dat_without_size_assumes_a_sensor(tmp_path):
    words = struct.pack("<4I", 10, 1 << 28 | 200 << 14 | 303, 20, 100 << 14 | 7)
    source = DatEvents(saved(tmp_path / "x.dat", b"% Version 2\n\x0c\x08" + words))
    assert read(source) == ([[10, 303, 200, 1], [20, 7, 100, 0]], None)
    assert source.format == "Prophesee dat, version 2, 346x260 assumed"


P, OTHER = "Prophesee", "rp1-cfe"


@pytest.mark.parametrize(
    ("camera", "plugin", "integrator", "system", "is_legacy"),
    [
        (P, P, "", "49", True),
        (P, P, OTHER, "49", True),
        (OTHER, P, P, "49", False),
        (P, OTHER, P, "49", False),
        (P, "", P, "49", False),
        ("", "", P, "49", True),
        ("", "", OTHER, "49", False),
        ("", "", "", "49", False),
        (P, P, P, "-1", False),
        (P, P, P, "0", False),
        (P, P, P, "55", False),
    ],
)
def test_word_order_of_evt21_follows_the_integrators(camera, plugin, integrator, system, is_legacy):
    """As Prophesee's OpenEB finds it; a stated order decides."""
    names = ("camera_integrator_name", "plugin_integrator_name", "integrator_name", "system_id")
    values = zip(names, (camera, plugin, integrator, system), strict=True)
    header = {name: value for name, value in values if value}
    assert prophesee._is_legacy(header) == is_legacy
    assert prophesee._is_legacy({**header, "format_endianness": "legacy"})
    assert not prophesee._is_legacy({**header, "format_endianness": "little"})


@pytest.mark.parametrize(
    ("name", "on"),
    [
        ("imx636_camera_integrator_only", 3003),
        ("imx636_with_integrator_name", 3003),
        ("genx320_raspberry_pi", 3016),
    ],
)
def test_field_cases_of_evt21_hold_all_events(shared, name, on):
    events, _ = read(RawEvents(shared / f"data/field_cases/10_headers_of_evt21/{name}.raw"))
    assert (len(events), sum(p for *_, p in events)) == (6000, on)
