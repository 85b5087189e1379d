"""Windows in a row in real time: captions, dropped windows and latencies.

The thread of the captioner node drives our decoder. Any other decoder has one window in work. Then it gets
the newest window, and the windows between are dropped.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from crossspec_lab.baselines.one_shot import Written
from crossspec_lab.bench.live import OPTIONS, sleep_until
from crossspec_lab.bench.records import Record
from crossspec_lab.world.phrases import QUESTION
from crossspec_ros.captioning.caption import Listener, Outcome
from crossspec_ros.captioning.captioner import Captioner
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.telemetry.trace import TARGET_STAGES, Trace
from crossspec_ros.windows.grid import SECOND, WindowGrid
from crossspec_ros.windows.window import EVENTS, FRAMES, Window

_START_S = 0.2
_WAIT_S = 120.0


def caption_stream(
    decoder: Any, windows: Sequence[Window], period_s: float, name: str, condition: str = ""
) -> Iterator[Record]:
    """Caption windows that open every `period_s`; yield a record of each, also of the dropped ones.

    `more` has `dropped`, the seconds from the stream's begin to the caption (`ended_s`), and the target's own
    seconds for the caption and its rehearsals (`engine_s`).
    """
    begun_ns, period_ns = time.perf_counter_ns() + round(_START_S * SECOND), round(period_s * SECOND)
    streamed = [paced(window, i, period_ns) for i, window in enumerate(windows)]
    run = _by_captioner if isinstance(decoder, PrefillHiddenDecoder) else _one_by_one
    due = 0
    for window, written, ended_ns, engine_s in run(decoder, streamed, begun_ns, period_ns):
        for dropped in range(due, window.index):
            yield Record(condition, name, dropped, more={"dropped": True})
        due = window.index + 1
        ended_s, last_s = (ended_ns - begun_ns) / SECOND, window.frame_stamps_ns[-1] / SECOND
        yield Record(
            condition,
            name,
            window.index,
            written.tokens,
            written.accept_lengths,
            wall_s=ended_s - last_s,
            closed_s=window.end_ns / SECOND - last_s,
            more={"dropped": False, "ended_s": ended_s, "engine_s": engine_s},
        )


_Captioned = tuple[Window, Written, int, float]
"""A window, its caption, when that was complete in ns, and the target's own seconds."""


def _by_captioner(
    decoder: PrefillHiddenDecoder, windows: Sequence[Window], begun_ns: int, period_ns: int
) -> Iterator[_Captioned]:
    """Use the captioner's own thread: frames and event images come at their times, and windows close."""
    outcomes: queue.Queue[Outcome] = queue.Queue()
    grid = WindowGrid(period_ns, decoder.pair.target.spec.frames)
    captioner = Captioner(decoder, OPTIONS, _Queued(outcomes), grid=grid)
    captioner.start()
    try:
        for at_ns, do in sorted(_arrivals(captioner, windows, begun_ns), key=lambda one: one[0]):
            sleep_until(begun_ns + at_ns)
            do()
        for _ in windows:
            outcome = outcomes.get(timeout=_WAIT_S)
            if outcome.error is not None:
                raise outcome.error
            if outcome.caption is not None:
                caption, spans = outcome.caption, outcome.trace.spans
                ended_ns = max(span.end_ns for span in spans if span.stage == "answer")
                engine_ns = sum(span.end_ns - span.start_ns for span in spans if span.stage in TARGET_STAGES)
                written = Written(caption.token_ids, caption.accept_lengths)
                yield windows[outcome.window.index], written, ended_ns, engine_ns / SECOND
    finally:
        captioner.stop(_WAIT_S)


class _Queued(Listener):
    def __init__(self, outcomes: queue.Queue[Outcome]) -> None:
        self._outcomes = outcomes

    def outcome(self, outcome: Outcome) -> None:
        self._outcomes.put(outcome)


def _arrivals(
    captioner: Captioner, windows: Sequence[Window], begun_ns: int
) -> Iterator[tuple[int, Callable[[], Any]]]:
    """Yield each arrival with its time in the stream."""
    for window in windows:
        for image, stamp_ns in zip(window.frames, window.frame_stamps_ns, strict=True):
            yield stamp_ns, partial(captioner.add_image, window.index, FRAMES, image, stamp_ns)
        slice_ns = (window.end_ns - window.start_ns) // max(1, len(window.event_images))
        for i, image in enumerate(window.event_images, 1):
            # The last slice ends before the captioner closes its window.
            at_ns = window.start_ns + i * slice_ns - 1
            yield at_ns, partial(captioner.add_image, window.index, EVENTS, image, at_ns)
        yield window.end_ns, partial(captioner.close, window, begun_ns + window.end_ns)


def _one_by_one(
    decoder: Any, windows: Sequence[Window], begun_ns: int, period_ns: int
) -> Iterator[_Captioned]:
    done = -1
    while done + 1 < len(windows):
        newest_closed = (time.perf_counter_ns() - begun_ns) // period_ns - 1
        done = min(max(done + 1, newest_closed), len(windows) - 1)
        window = windows[done]
        sleep_until(begun_ns + window.frame_stamps_ns[-1])
        started_ns = time.perf_counter_ns()
        written = decoder(window, QUESTION, Trace())
        ended_ns = time.perf_counter_ns()
        yield window, written, ended_ns, (ended_ns - started_ns) / SECOND


def paced(window: Window, index: int, period_ns: int) -> Window:
    """Return the window as the `index`-th of a stream whose windows last `period_ns`."""
    start_ns = index * period_ns
    scale = period_ns / (window.end_ns - window.start_ns)
    stamps = tuple(start_ns + round((stamp - window.start_ns) * scale) for stamp in window.frame_stamps_ns)
    return replace(
        window, index=index, start_ns=start_ns, end_ns=start_ns + period_ns, frame_stamps_ns=stamps
    )
