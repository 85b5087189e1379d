"""`crossspec synth` writes DSEC's layout exactly."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import h5py
import hdf5plugin
import numpy as np
import pytest

from crossspec_ros.cli import main
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.recordings.hdf5 import Hdf5Recording

assert hdf5plugin


@pytest.fixture(scope="module")
def sequence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("synth") / "drive"
    assert main(["synth", str(path), "--seconds", "1", "--seed", "1000007"]) == 0
    return path


def events_of(sequence: Path) -> EventBatch:
    return EventBatch.concat([*Hdf5Recording(sequence / "events/left/events.h5").batches()])


def test_layout_is_dsecs(sequence: Path) -> None:
    with h5py.File(sequence / "events/left/events.h5") as file:
        t, index = file["events/t"][:], file["ms_to_idx"][:]
        assert {file[f"events/{name}"].dtype.name for name in "xy"} == {"uint16"}
        assert file["events/p"].dtype == np.uint8 and t.dtype == np.uint32 and index.dtype == np.uint64
        assert file["events/t"].compression is not None or file["events/t"]._filters
        assert int(file["t_offset"][()]) == 100_000_000
    # DSEC's definition: t[index[ms]] >= ms * 1000 and t[index[ms] - 1] < ms * 1000
    for ms, i in enumerate(index):
        assert t[i] >= ms * 1000 and (i == 0 or t[i - 1] < ms * 1000)
    stamps = (sequence / "images/timestamps.txt").read_text().split()
    assert [int(s) for s in stamps] == [100_000_000 + 50_000 * i for i in range(20)]
    assert len(list((sequence / "images/left/rectified").glob("*.png"))) == 20


def test_sequence_reads_back_with_its_truth(sequence: Path) -> None:
    batch = events_of(sequence)
    assert len(batch) > 20_000 and batch.width == 320 and int(batch.x.max()) < 320
    assert cv2.imread(str(sequence / "images/left/rectified/000000.png")).shape == (480, 640, 3)
    truth = json.loads((sequence / "ground_truth.json").read_text())
    assert truth["windows"][0]["start_ns"] == 100 * 10**9 and truth["seed"] == 1_000_007


def test_same_seed_gives_same_events(sequence: Path, tmp_path: Path) -> None:
    assert main(["synth", str(tmp_path / "again"), "--seconds", "1", "--seed", "1000007"]) == 0
    first, second = (events_of(path) for path in (sequence, tmp_path / "again"))
    assert all(np.array_equal(getattr(first, k), getattr(second, k)) for k in "txyp")
