"""Windows of a recording, as the captioner would get them from the synchronizer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from crossspec_lab.bench.held_out import event_shape
from crossspec_ros.captioning.replay_setup import ReplaySetup
from crossspec_ros.errors import InputError
from crossspec_ros.events.stamps import parts
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.windows.assembler import WindowAssembler
from crossspec_ros.windows.pipeline import Pipeline
from crossspec_ros.windows.window import Window


def recorded_windows(pair: ModelPair, path: Path, count: int) -> list[Window]:
    """The first `count` windows that have all their frames; InputError where the recording has none."""
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
