"""`crossspec synth` writes DSEC's layout exactly, and the same for the same seed."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import h5py
import hdf5plugin
import numpy as np

from crossspec_ros.cli import main
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.recordings.hdf5 import Hdf5Recording

assert hdf5plugin


def test_synth_writes_equal_dsec_sequences(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for path in (first, second):
        assert main(["synth", str(path), "--seconds", "1", "--seed", "1000007"]) == 0
    with h5py.File(first / "events/left/events.h5") as file:
        t, index = file["events/t"][:], file["ms_to_idx"][:]
        assert {file[f"events/{name}"].dtype.name for name in "xy"} == {"uint16"}
        assert file["events/p"].dtype == np.uint8 and t.dtype == np.uint32 and index.dtype == np.uint64
        assert file["events/t"].compression is not None or file["events/t"]._filters
        assert int(file["t_offset"][()]) == 100_000_000
    # DSEC's definition: t[index[ms]] >= ms * 1000 and t[index[ms] - 1] < ms * 1000
    for ms, i in enumerate(index):
        assert t[i] >= ms * 1000 and (i == 0 or t[i - 1] < ms * 1000)
    stamps = (first / "images/timestamps.txt").read_text().split()
    assert [int(s) for s in stamps] == [100_000_000 + 50_000 * i for i in range(20)]
    assert len(list((first / "images/left/rectified").glob("*.png"))) == 20
    assert cv2.imread(str(first / "images/left/rectified/000000.png")).shape == (480, 640, 3)
    truth = json.loads((first / "ground_truth.json").read_text())
    assert truth["windows"][0]["start_ns"] == 100 * 10**9 and truth["seed"] == 1_000_007
    batch, again = (
        EventBatch.concat([*Hdf5Recording(path / "events/left/events.h5").batches()])
        for path in (first, second)
    )
    assert len(batch) > 20_000 and batch.width == 320 and int(batch.x.max()) < 320
    assert all(np.array_equal(getattr(batch, k), getattr(again, k)) for k in "txyp")
