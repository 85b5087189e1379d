"""DSEC sequences: their events, frames and what is damaged."""

from __future__ import annotations

import shutil
from contextlib import closing

import cv2
import h5py
import numpy as np
import pytest
from crossspec_lab.world.synth import write_events_h5
from event_samples import assert_equal, batch_of, random_batch
from recording_samples import DSEC_OFFSET_US, DSEC_START_US, decode, write_sequence

from crossspec_ros.errors import InputError
from crossspec_ros.events.cdr import COMPRESSED_IMAGE, typestore
from crossspec_ros.recordings.dsec import DsecRecording
from crossspec_ros.recordings.options import ReadOptions
from crossspec_ros.recordings.survey import survey


@pytest.fixture(scope="module")
def events():
    return random_batch(5000, t_start=DSEC_START_US, duration_us=95_000, width=320, height=240)


@pytest.fixture
def sequence(tmp_path, events):
    return write_sequence(tmp_path / "drive", events)


def play(path):
    """Return the events and the images of a sequence, and its losses."""
    with closing(DsecRecording(path)) as recording:
        messages = list(recording.messages())
        start_us = recording.start_ns // 1000 >> 24 << 24
        heard = decode([message for message in messages if message.kind == "events"], start_us)
        images = [
            (message.stamp_ns, typestore().deserialize_cdr(message.data, COMPRESSED_IMAGE))
            for message in messages
            if message.kind == "image"
        ]
        return heard, images, recording.losses


@pytest.mark.parametrize("folder", ["rectified", "distorted"])
def test_events_and_frames_play(sequence, events, folder):
    """dsec-det has frames in `distorted` only."""
    if folder != "rectified":
        (sequence / "images/left/rectified").rename(sequence / "images/left" / folder)
    heard, images, losses = play(sequence)
    assert_equal(heard, events)
    assert losses == []
    assert [stamp for stamp, _ in images] == [(DSEC_START_US + 50_000 * i) * 1000 for i in range(3)]
    assert {image.format for _, image in images} == {"png"}
    pixels = cv2.imdecode(images[2][1].data, cv2.IMREAD_COLOR)
    assert (pixels == (30, 20, 20)).all()


def test_a_sequence_without_stated_size_has_dsecs(sequence):
    with h5py.File(sequence / "events/left/events.h5", "a") as file:
        file.attrs.clear()
    heard, _, _ = play(sequence)
    assert (heard.width, heard.height) == (640, 480)


def test_a_sequence_may_lack_frames(sequence, events):
    shutil.rmtree(sequence / "images")
    heard, images, _ = play(sequence)
    assert_equal(heard, events)
    assert images == []


def test_frames_may_come_from_another_folder(sequence):
    shutil.copytree(sequence / "images/left/rectified", sequence / "images/left/distorted")
    report = survey(sequence, asked=ReadOptions(images=sequence / "images/left/distorted"))
    assert "images/timestamps.txt" in report["format"]
    assert [topic["messages"] for topic in report["topics"] if topic["kind"] == "images"] == [3]


def test_a_case_of_the_field_plays(shared):
    report = survey(shared / "data/cases/dsec_det_sequence/seq")
    assert [topic["messages"] for topic in report["topics"] if topic["kind"] == "images"] == [13]


@pytest.mark.parametrize(("missing", "offset"), [("t_offset", -DSEC_OFFSET_US), ("ms_to_idx", 0)])
def test_only_the_events_must_be_there(sequence, events, missing, offset):
    shutil.rmtree(sequence / "images")
    with h5py.File(sequence / "events/left/events.h5", "a") as file:
        del file[missing]
    with closing(DsecRecording(sequence)) as recording:
        assert recording.start_ns == (events.t[0] + offset) * 1000


@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.9])
def test_truncated_files_are_refused(sequence, keep):
    file = sequence / "events/left/events.h5"
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(InputError, match=r"events\.h5' is truncated"):
        DsecRecording(sequence)


@pytest.mark.parametrize(
    "stamps", ["5\n6\n", "soon\n5\n6\n", f"{2**63}\n5\n6\n", "-1\n5\n6\n", "nan\n5\n6\n"]
)
def test_times_that_do_not_fit_the_frames_are_refused(sequence, stamps):
    (sequence / "images/timestamps.txt").write_text(stamps)
    with pytest.raises(InputError, match=r"timestamps\.txt'"):
        DsecRecording(sequence)


def test_unreadable_frames_are_a_loss(sequence):
    (sequence / "images/left/rectified/000001.png").write_bytes(b"TOP SECRET")
    (sequence / "images/left/rectified/000002.png").unlink()
    (sequence / "images/left/rectified/000002.png").mkdir()
    (sequence / "images/timestamps.txt").write_text("50000001234\n50000051234\n")
    _, images, losses = play(sequence)
    assert len(images) == 1 and "000001.png" in losses[0]


def test_the_writer_refuses_times_that_do_not_fit(tmp_path):
    for t in ([5, 4], [1 << 32], [-1], []):
        zeros = np.zeros(len(t))
        with pytest.raises(ValueError, match="71 minutes"):
            write_events_h5(tmp_path / "events.h5", batch_of(t, zeros, zeros, zeros), 0)
