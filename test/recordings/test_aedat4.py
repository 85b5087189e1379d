"""`.aedat4` files, written by dv-processing."""

from __future__ import annotations

from itertools import pairwise

import dv_processing as dv
import numpy as np
import pytest
from crossspec_lab.samples.event_files import random_batch, write_aedat
from event_samples import assert_equal
from recording_samples import decode
from refusals import refused

from crossspec_ros.events.cdr import EVENT_PACKET, IMAGE, typestore
from crossspec_ros.recordings.recording import open_here, open_recording
from crossspec_ros.recordings.survey import survey

START_US = 1_700_000_000_000_000
SIZE = (346, 260)


@pytest.fixture(scope="module")
def events():
    return random_batch(5000, t_start=START_US, duration_us=95_000, width=346, height=260)


@pytest.fixture(scope="module")
def frames():
    rng = np.random.default_rng(0)
    shapes = ((260, 346, 3), (260, 346), (260, 346, 4))
    return [(START_US + 30_000 * i, rng.integers(0, 255, shape, np.uint8)) for i, shape in enumerate(shapes)]


@pytest.fixture
def aedat(tmp_path, events, frames):
    return write_aedat(tmp_path / "ride.aedat4", events, frames)


def of_kind(messages, kind):
    return [message for message in messages if message.kind == kind]


def test_a_file_plays_events_and_frames(aedat, events, frames):
    recording = open_recording(aedat)
    assert (recording.event_type, recording.image_type) == (EVENT_PACKET, IMAGE)
    assert recording.start_ns == START_US * 1000
    messages = list(recording.messages())
    assert all(a.stamp_ns <= b.stamp_ns for a, b in pairwise(messages))
    assert_equal(decode(of_kind(messages, "events")), events)
    images = of_kind(messages, "image")
    assert [image.stamp_ns for image in images] == [t * 1000 for t, _ in frames]
    orders = ([2, 1, 0], [0], [2, 1, 0, 3])
    for message, (_, pixels), order in zip(images, frames, orders, strict=True):
        image = typestore().deserialize_cdr(message.data, IMAGE)
        assert image.encoding == {3: "rgb8", 1: "mono8", 4: "rgba8"}[len(order)]
        expected = pixels.reshape(260, 346, -1)[..., order]
        assert image.step * image.height == pixels.size
        np.testing.assert_array_equal(image.data.reshape(expected.shape), expected)
    assert list(recording.messages()) == messages and recording.losses == []


def test_a_recording_starts_with_its_first_exposure(tmp_path, events):
    writer = dv.io.MonoCameraWriter(str(tmp_path / "x.aedat4"), dv.io.MonoCameraWriter.DAVISConfig("C", SIZE))
    store = dv.EventStore()
    store.push_back(START_US, 1, 1, True)
    writer.writeEvents(store)
    pixels = np.zeros((260, 346), np.uint8)
    writer.writeFrame(dv.Frame(START_US - 250, 500, 0, 0, pixels, dv.FrameSource.SENSOR))
    del writer
    recording = open_here(tmp_path / "x.aedat4")
    assert recording.start_ns == next(recording.messages()).stamp_ns == (START_US - 250) * 1000


def test_complete_packets_of_cut_file_play(tmp_path, aedat, events):
    data, cut = aedat.read_bytes(), tmp_path / "cut.aedat4"
    counts = []
    for size in (len(data) * 3 // 4, len(data) // 10):
        cut.write_bytes(data[:size])
        recording = open_here(cut)
        messages = list(recording.messages())
        played = decode(of_kind(messages, "events"))
        assert_equal(played, events[: len(played)])
        counts.append((len(played), len(of_kind(messages, "image"))))
        (loss,) = recording.losses
        report = survey(cut)
        assert report["topics"][-1]["events"] == len(played) and loss in report["findings"][0]
    assert counts == sorted(counts, reverse=True) and counts[1][0] >= 1000


def test_packets_before_a_damaged_one_play(aedat, events):
    """dv-processing hangs there."""
    data = bytearray(aedat.read_bytes())
    header = 14 + 4 + int.from_bytes(data[14:18], "little")
    second = header + 8 + int.from_bytes(data[header + 4 : header + 8], "little") + 8
    data[second + 20 : second + 220] = bytes(200)
    aedat.write_bytes(data)
    recording = open_here(aedat)
    assert_equal(decode(of_kind(recording.messages(), "events")), events[:1000])
    assert len(recording.losses) == 1


def test_a_second_camera_is_a_remark(tmp_path):
    """Neither has frames."""
    sides = [dv.io.MonoCameraWriter.Config(name) for name in ("LEFT", "RIGHT")]
    for side in sides:
        side.addEventStream(SIZE)
    store = dv.EventStore()
    for t in range(100):
        store.push_back(START_US + t, 1, 1, True)
    path = tmp_path / "two.aedat4"
    writer = dv.io.StereoCameraWriter(str(path), *sides)
    writer.left.writeEvents(store)
    writer.right.writeEvents(store)
    del writer
    recording = open_here(path)
    assert len(recording.remarks) == 1 and len(decode(recording.messages())) == 100
    assert (recording.image_topic, recording.image_type) == (None, None)


def test_a_file_without_events_is_named(tmp_path, frames):
    for code, kind in (("aedat4-no-event-stream", ["FrameOnly"]), ("aedat4-no-events", [])):
        path = write_aedat(tmp_path / "frames.aedat4", [], frames, *kind)
        with refused(code):
            open_here(path)


@pytest.mark.parametrize("keep", [0, 1, 100])
def test_a_file_without_its_header_is_named(aedat, keep):
    aedat.write_bytes(aedat.read_bytes()[:keep])
    with refused("aedat4-no-header", library_text=True):
        open_here(aedat)


def test_a_frame_outside_ros_time_is_named(tmp_path, events):
    path = write_aedat(tmp_path / "ride.aedat4", events, [(1 << 51, np.zeros((6, 8, 3), np.uint8))])
    recording = open_here(path)
    assert_equal(decode(of_kind(recording.messages(), "events")), events)
    assert len(recording.losses) == 1
