"""A window as a running node sees it: its images come in real time, then it closes."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from crossspec_ros.captioning.caption import Caption
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


def live(
    decoder: PrefillHiddenDecoder,
    window: Window,
    trace: Trace,
    question: str,
    on_draft: Callable[[str], None] | None = None,
    on_words: Callable[[str], None] | None = None,
    trusted: Window | None = None,
) -> Caption:
    """Live through the window's second and caption it; the trace gets the mark "closed".

    Frames come at their stamps, event images at the ends of slices of equal time. `trusted` is the part of
    the window that the caption may rest on, by default all of it.
    """
    opened, slices = time.perf_counter_ns(), len(window.event_images)

    def take_frame(frame: np.ndarray) -> None:
        decoder.stream_frame(window.index, frame)

    def take_event_image(image: np.ndarray) -> None:
        decoder.stream_event_image(window.index, image, question, on_draft)

    length = window.end_ns - window.start_ns
    frames = zip(window.frame_stamps_ns, window.frames, strict=True)
    arrivals: list[tuple[int, Callable[[np.ndarray], None], np.ndarray]] = [
        (stamp - window.start_ns, take_frame, frame) for stamp, frame in frames
    ]
    arrivals += [
        ((i + 1) * length // slices, take_event_image, image) for i, image in enumerate(window.event_images)
    ]
    for offset, take, image in sorted(arrivals, key=lambda arrival: arrival[0]):
        _sleep_until(opened + offset)
        take(image)
    _sleep_until(opened + length)
    # Not now: what is still to be read when the second is over counts as waiting.
    trace.mark("closed", opened + length)
    return decoder.caption(trusted or window, question, trace, on_words)


def _sleep_until(at_ns: int) -> None:
    time.sleep(max(0, at_ns - time.perf_counter_ns()) / 1e9)
