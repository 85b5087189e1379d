"""One second of the synthetic world, captioned in real time, with all that a picture of it shows."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from crossspec_lab.compare.held_out import live, window_of
from crossspec_lab.world.camera import FRAME_SIZE, events, frame
from crossspec_lab.world.phrases import QUESTION
from crossspec_lab.world.scene import Scene
from crossspec_ros.captioning.caption import Caption
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

Words = list[tuple[float, str]]
"""The text so far, and when: ms from the arrival of the window's last frame."""


@dataclass(frozen=True)
class Drive:
    """A drive through the synthetic world."""

    seed: int
    scenes: list[Scene]

    def picture(self, t: float, size: tuple[int, int] = FRAME_SIZE) -> np.ndarray:
        """Picture of the RGB camera at `t` seconds, (H, W, 3) uint8."""
        return frame(self.scenes, self.seed, t, size)

    def events(self, start_s: int, end_s: int) -> EventBatch:
        """Return the events of these seconds."""
        return EventBatch.concat(list(events(self.scenes, self.seed, start_s, end_s)))


@dataclass
class Second:
    """One window of a drive, its caption, and how both came about."""

    drive: Drive
    second: int
    window: Window
    caption: Caption
    trace: Trace
    drafts: list[str]
    """Words of the event draft, unless the window closed before it was done."""

    @property
    def words(self) -> Words:
        """The caption, once it was verified."""
        ends = [span.end_ns for span in self.trace.spans if span.stage == "answer"]
        return [(self.ms(ends[-1]), self.caption.text)] if ends else []

    def ms(self, at_ns: int) -> float:
        """From the arrival of the last frame to a time in ns of `time.perf_counter_ns`."""
        return (at_ns - self.trace.marks["last_frame"]) / 1e6


def live_second(decoder: PrefillHiddenDecoder, drive: Drive, second: int) -> Second:
    """Live through one second of the drive and caption it."""
    window = window_of(decoder.pair, drive.scenes, drive.seed, second)
    trace, drafts = Trace(), list[str]()
    caption = live(decoder, window, trace, QUESTION, drafts.append)
    return Second(drive, second, window, caption, trace, drafts)


def alone(decoder: PrefillHiddenDecoder, window: Window) -> Words:
    """Words of a decoder that gets the window when its last frame has come."""
    told, started = list[tuple[float, str]](), time.perf_counter()
    decoder.caption(
        window, QUESTION, Trace(), lambda text: told.append((1e3 * (time.perf_counter() - started), text))
    )
    return told
