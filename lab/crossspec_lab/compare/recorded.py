"""Windows of a recording, as the captioner would get them from the synchronizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import astuple
from itertools import islice
from pathlib import Path

from crossspec_ros.captioning.settings import SynchronizerSettings
from crossspec_ros.errors import InputError
from crossspec_ros.events.stamps import parts
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.recordings.recording import open_recording
from crossspec_ros.windows.assembler import WindowAssembler
from crossspec_ros.windows.pipeline import Pipeline
from crossspec_ros.windows.synchronizer import EventImageReady, FrameReady
from crossspec_ros.windows.window import Window


def recorded_windows(pair: ModelPair, path: Path, count: int) -> list[Window]:
    """The first `count` windows that have all their frames; InputError where the recording has none."""
    found = [window for window in _windows(pair, path) if len(window.frames) == pair.frames]
    if not found:
        raise InputError(f"'{path}' has no second with {pair.frames} frames: name a recording with images")
    return list(islice(found, count))


def _windows(pair: ModelPair, path: Path) -> Iterator[Window]:
    settings = SynchronizerSettings(
        frames=pair.frames,
        event_images=pair.event_images,
        frame_size=pair.frame_size,
        event_image_size=pair.event_image_size,
    )
    pipeline = Pipeline(settings)
    assembler = WindowAssembler(pipeline.grid)
    with closing(open_recording(path)) as recording:
        for message in parts(recording.messages()):
            for update in pipeline.take_recorded(message):
                closed: Iterable[Window]
                if isinstance(update, FrameReady):
                    closed = assembler.add_frame(update.stamp_ns, update.image)
                elif isinstance(update, EventImageReady):
                    closed = assembler.add_event_image(update.stamp_ns, update.image)
                else:
                    closed = assembler.close(*astuple(update))
                yield from closed
