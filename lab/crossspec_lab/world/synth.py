"""`crossspec synth`: a drive through the synthetic world as a DSEC sequence, with its true captions."""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import replace
from itertools import islice
from pathlib import Path

import cv2
import h5py
import hdf5plugin
import numpy as np
from rich.console import Console
from rich.progress import track

from crossspec_lab.world.camera import EVENTS_HZ, FRAME_PERIOD_S, events, frame
from crossspec_lab.world.phrases import QUESTION, attributes, caption
from crossspec_lab.world.scene import drive
from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.recordings.recording import DSEC_EVENTS

_START_S = 100
"""The clock of every sequence starts at this second, so that its windows are those of the drive."""


def run(args: argparse.Namespace) -> int:
    """Write `args.seconds` of the drive `args.seed` to the new directory `args.out`."""
    out: Path = args.out
    if args.seconds < 1:
        raise InputError(f"--seconds {args.seconds} gives no window: ask for at least 1")
    if args.seed < 0:
        raise InputError(f"--seed {args.seed} is negative: give 0 or more")
    if out.exists():
        raise InputError(f"'{out}' exists already: name a new directory or remove it")
    try:
        _write(out, args.seconds, args.seed)
    except BaseException:
        # An interrupted sequence would look complete.
        shutil.rmtree(out, ignore_errors=True)
        raise
    print(f"{out}: {args.seconds} s of drive {args.seed}")
    return 0


def _write(out: Path, seconds: int, seed: int) -> None:
    scenes = drive(seed, seconds)
    frames, h5 = out / "images/left/rectified", out / DSEC_EVENTS
    frames.mkdir(parents=True)
    h5.parent.mkdir(parents=True)
    batches: list[EventBatch] = []
    stamps_us: list[int] = []
    drawn = events(scenes, seed, 0, seconds)
    for second in track(range(seconds), "drawing the drive", console=Console(stderr=True), transient=True):
        for tick in range(round(1 / FRAME_PERIOD_S)):
            t = second + tick * FRAME_PERIOD_S
            picture = cv2.cvtColor(frame(scenes, seed, t), cv2.COLOR_RGB2BGR)
            file = frames / f"{len(stamps_us):06d}.png"
            file.write_bytes(cv2.imencode(".png", picture)[1].tobytes())
            stamps_us.append(_START_S * 1_000_000 + round(t * 1e6))
        batches += islice(drawn, EVENTS_HZ)
    batch = EventBatch.concat(batches)
    write_events_h5(h5, replace(batch, t=batch.t + _START_S * 1_000_000), _START_S * 1_000_000)
    np.savetxt(out / "images/timestamps.txt", np.array(stamps_us), fmt="%d")
    windows = [
        {"start_ns": (_START_S + i) * 10**9, "caption": caption(scene), "attributes": attributes(scene)}
        for i, scene in enumerate(scenes)
    ]
    truth = {"seed": seed, "question": QUESTION, "windows": windows}
    (out / "ground_truth.json").write_text(json.dumps(truth, indent=1) + "\n")


def write_events_h5(path: Path, batch: EventBatch, t_offset: int) -> None:
    """Write `events.h5` of a sequence, with the sensor's size; see `put_events`."""
    with h5py.File(path, "w") as file:
        put_events(file, batch, t_offset)
        file.attrs["width"], file.attrs["height"] = batch.width, batch.height


def put_events(file: h5py.File, batch: EventBatch, t_offset: int) -> None:
    """Put events in DSEC's layout; `batch.t` is absolute, in order, and not before `t_offset` us.

    Raises ValueError for times that do not fit: the file holds 32 bits of us over `t_offset`.
    """
    t = batch.t - t_offset
    if not len(t) or t[0] < 0 or t[-1] >= 1 << 32 or np.any(t[1:] < t[:-1]):
        raise ValueError("DSEC needs events in order, within 71 minutes from t_offset")
    # ms_to_idx[ms] is the first event at or after that millisecond, up to the millisecond of the last event.
    ms_to_index = np.searchsorted(t, np.arange(int(t[-1]) // 1000 + 1) * 1000)
    packed = hdf5plugin.Blosc(cname="zstd", clevel=5, shuffle=hdf5plugin.Blosc.SHUFFLE)
    for name, values in (("x", batch.x), ("y", batch.y), ("t", t.astype(np.uint32)), ("p", batch.p)):
        file.create_dataset(f"events/{name}", data=values, compression=packed, chunks=True)
    file.create_dataset("ms_to_idx", data=ms_to_index.astype(np.uint64), compression=packed, chunks=True)
    file.create_dataset("t_offset", data=np.int64(t_offset))
