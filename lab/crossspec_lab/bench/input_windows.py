"""Windows as the captioner gets them from the synchronizer: of unseen drives, and of recordings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from crossspec_lab.bench.statistics import WINDOWS_PER_DRIVE
from crossspec_lab.world.camera import FRAME_PERIOD_S, events, frame
from crossspec_lab.world.dataset import HELD_OUT
from crossspec_lab.world.scene import Scene, drive
from crossspec_ros.captioning.replay_setup import ReplaySetup
from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.stamps import parts
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.windows.assembler import WindowAssembler
from crossspec_ros.windows.grid import SECOND, WindowGrid
from crossspec_ros.windows.pipeline import Pipeline
from crossspec_ros.windows.resize import resize_shortest
from crossspec_ros.windows.synchronizer import EventImageReady, FrameReady, Synchronizer
from crossspec_ros.windows.window import FRAMES, Window

FIRST_SEED = HELD_OUT + 500_000


def held_out_windows(pair: ModelPair, count: int) -> Iterator[tuple[Window, Scene]]:
    """Yield windows of unseen drives, in the sizes that the synchronizer would send."""
    for i in range(count):
        seed, second = FIRST_SEED + i // WINDOWS_PER_DRIVE, i % WINDOWS_PER_DRIVE
        scenes = drive(seed, WINDOWS_PER_DRIVE + 1)
        yield window_of(pair, scenes, seed, second), scenes[second]


def event_shape(pair: ModelPair) -> tuple[int, int]:
    """Event images of a window and their shortest edge; zeros without a draft."""
    return (pair.draft.event_images, pair.draft.image_size) if pair.draft else (0, 0)


def window_of(pair: ModelPair, scenes: list[Scene], seed: int, second: int) -> Window:
    """One second of a drive as the captioner would get it from the synchronizer."""
    grid = WindowGrid(slots=pair.target.spec.frames)
    images, side = event_shape(pair)
    synchronizer = Synchronizer(grid, images)
    assembler = WindowAssembler(grid)
    batch = EventBatch.concat(list(events(scenes, seed, second, second + 1)))
    in_ros_time = EventBatch(batch.t * 1000, batch.x, batch.y, batch.p, batch.width, batch.height)
    updates = list(synchronizer.add_events(in_ros_time))
    for tick in range(round(1 / FRAME_PERIOD_S)):
        t = second + tick * FRAME_PERIOD_S
        updates += synchronizer.add_frame(round(t * SECOND), partial(frame, scenes, seed, t))
    for update in [*updates, *synchronizer.advance(FRAMES, (second + 20) * SECOND)]:
        if isinstance(update, FrameReady):
            assembler.add_frame(update.stamp_ns, resize_shortest(update.image, pair.target.spec.image_size))
        elif isinstance(update, EventImageReady):
            assembler.add_event_image(update.stamp_ns, resize_shortest(update.image, side))
        else:
            return next(iter(assembler.close(*update)))
    raise AssertionError("a window with data closes")


def recorded_windows(pair: ModelPair, path: Path, count: int) -> list[Window]:
    """Return the first `count` windows that have all their frames; raise InputError without any."""
    frames = pair.target.spec.frames
    found = [window for window in windows_of(pair, ReplaySetup(path)) if len(window.frames) == frames]
    if not found:
        raise InputError(f"'{path}' has no second with {frames} frames: name a recording with images")
    return list(islice(found, count))


def windows_of(pair: ModelPair, recording: ReplaySetup) -> Iterator[Window]:
    """Yield the windows of a recording in the sizes of this pair."""
    images, side = event_shape(pair)
    sizes: dict[str, Any] = {
        "frames": pair.target.spec.frames,
        "event_images": images,
        "frame_size": pair.target.spec.image_size,
        "event_image_size": side,
    }
    with closing(recording) as setup:
        pipeline = Pipeline(replace(setup.synchronizer, **sizes))
        assembler = WindowAssembler(pipeline.grid)
        for message in parts(setup.recording.messages()):
            for update in pipeline.take_recorded(message):
                yield from assembler.add(update)
