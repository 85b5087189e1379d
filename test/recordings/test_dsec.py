"""DSEC sequences: events, frames and damage."""

from __future__ import annotations

import shutil
from contextlib import closing

import h5py
import numpy as np
import pytest
from crossspec_lab.samples.event_files import (
    DSEC_OFFSET_US,
    DSEC_START_US,
    batch_of,
    random_batch,
    write_sequence,
)
from crossspec_lab.world.synth import write_events_h5
from recording_samples import played
from refusals import refused

from crossspec_ros.recordings.options import ReadOptions
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.recordings.survey import survey


@pytest.fixture(scope="module")
def events():
    return random_batch(5000, t_start=DSEC_START_US, duration_us=95_000, width=320, height=240)


@pytest.fixture
def sequence(tmp_path, events):
    return write_sequence(tmp_path / "drive", events)


def test_distorted_frames_play(sequence):
    """dsec-det has no others."""
    (sequence / "images/left/rectified").rename(sequence / "images/left/distorted")
    assert len(played(sequence)[1]) == 3


def test_frames_may_come_from_another_folder(sequence):
    shutil.copytree(sequence / "images/left/rectified", sequence / "images/left/distorted")
    report = survey(sequence, options=ReadOptions(images=sequence / "images/left/distorted"))
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
    with closing(open_here(sequence)) as recording:
        assert recording.start_ns == (events.t[0] + offset) * 1000


def test_writer_refuses_times_out_of_range(tmp_path):
    for t in ([5, 4], [1 << 32], [-1], []):
        zeros = np.zeros(len(t))
        with refused("dsec-times-too-long", ValueError):
            write_events_h5(tmp_path / "events.h5", batch_of(t, zeros, zeros, zeros), 0)
