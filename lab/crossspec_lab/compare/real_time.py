"""Windows in a row in real time: what a decoder captions, what it drops, and how late it is.

A decoder has one window in work; when it is done, the newest window wins, and those between are dropped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crossspec_lab.baselines.written import Written
from crossspec_lab.compare.held_out import live, sleep_until
from crossspec_lab.world.phrases import QUESTION
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.grid import SECOND
from crossspec_ros.windows.window import Window

_START_S = 0.2


@dataclass(frozen=True)
class Captioned:
    """Caption of the window `index`, with seconds from its last frame, from its close (0 if before it), and
    from the stream's begin."""

    index: int
    written: Written
    from_last_s: float
    from_close_s: float
    ended_s: float


def caption_stream(decoder: Any, windows: Sequence[Window], period_s: float) -> Iterator[Captioned]:
    """Let `windows` open one after the other every `period_s`; those that are missing were dropped."""
    begun_ns, period_ns = time.perf_counter_ns() + round(_START_S * SECOND), round(period_s * SECOND)
    done = -1
    while done + 1 < len(windows):
        newest_closed = (time.perf_counter_ns() - begun_ns) // period_ns - 1
        done = min(max(done + 1, newest_closed), len(windows) - 1)
        opened_ns, window = begun_ns + done * period_ns, paced(windows[done], done, period_ns)
        last_ns, closed_ns = opened_ns + window.frame_stamps_ns[-1] - window.start_ns, opened_ns + period_ns
        trace = Trace()
        if isinstance(decoder, PrefillHiddenDecoder):
            sleep_until(opened_ns)
            caption = live(decoder, window, trace, QUESTION, opened_ns=opened_ns)
            written = Written(caption.token_ids, caption.accept_lengths)
            ended_ns = max(span.end_ns for span in trace.spans if span.stage == "answer")
        else:
            sleep_until(last_ns)
            written, ended_ns = decoder(window, QUESTION, trace), time.perf_counter_ns()
        from_last, from_close = (ended_ns - last_ns) / SECOND, max(0, ended_ns - closed_ns) / SECOND
        yield Captioned(done, written, from_last, from_close, (ended_ns - begun_ns) / SECOND)


def paced(window: Window, index: int, period_ns: int) -> Window:
    """The window, as if it were the `index`-th of so many nanoseconds."""
    start_ns = index * period_ns
    scale = period_ns / (window.end_ns - window.start_ns)
    stamps = tuple(start_ns + round((stamp - window.start_ns) * scale) for stamp in window.frame_stamps_ns)
    return replace(
        window, index=index, start_ns=start_ns, end_ns=start_ns + period_ns, frame_stamps_ns=stamps
    )
