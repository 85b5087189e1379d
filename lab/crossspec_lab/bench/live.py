"""Captions in real time: decoders live through a window or get it at its last frame, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from crossspec_lab.baselines.one_shot import Baseline, Waiting, Written
from crossspec_lab.bench.records import Record
from crossspec_lab.world.phrases import QUESTION
from crossspec_ros.captioning.caption import Caption, Options
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

Case = TypeVar("Case")
Decoder = Callable[[Case, Trace], Written]
"""Captions a case; where it is timed, it marks "last_frame" and "closed" in the trace."""
OPTIONS = Options(QUESTION)
_IDLE_S = 0.1
"""Pause before a decoder that begins at the last frame: ours is idle then, too."""
_POLL_S = 2e-4


def take_turns(
    decoders: Mapping[str, Decoder[Case]], cases: Iterable[Case], condition: str = ""
) -> Iterator[Record]:
    """Let each decoder caption each case, and yield the records.

    Another decoder begins each time, so that a machine that drifts favours none.
    """
    order = list(decoders)
    for index, case in enumerate(cases):
        for name in order:
            yield _record(condition, name, index, decoders[name], case)
        order = order[1:] + order[:1]


def _record(condition: str, name: str, index: int, decoder: Decoder[Case], case: Case) -> Record:
    trace, cpu_s, begun_ns = Trace(), time.process_time(), time.perf_counter_ns()
    written = decoder(case, trace)
    ended_ns, cpu_s = time.perf_counter_ns(), time.process_time() - cpu_s
    last_ns = trace.marks.get("last_frame", begun_ns)
    # Ours returns at the close, and others tidy up first.
    answered_ns = max((span.end_ns for span in trace.spans if span.stage == "answer"), default=ended_ns)
    first_ns = min(
        (span.end_ns for span in trace.spans if span.stage == "answer_first"),
        default=trace.marks.get("first_token", answered_ns),
    )

    def since_last_s(at_ns: int) -> float:
        return (at_ns - last_ns) / 1e9

    return Record(
        condition,
        name,
        index,
        written.tokens,
        written.accept_lengths,
        begun_s=since_last_s(begun_ns),
        first_token_s=since_last_s(first_ns),
        wall_s=since_last_s(answered_ns),
        closed_s=since_last_s(trace.marks.get("closed", last_ns)),
        ended_s=since_last_s(ended_ns),
        cpu_s=cpu_s,
        stages_ms=trace.stages | {"hidden": trace.hidden},
    )


def live(decoder: PrefillHiddenDecoder, window: Window, trace: Trace, options: Options = OPTIONS) -> Caption:
    """Caption the window in real time, and mark "last_frame" and "closed" in the trace.

    Frames come at their stamps, and event images at the ends of slices of equal time. The target rehearses in
    between. The answer begins with the last frame, and is returned after the window has closed.
    """
    length, slices = window.end_ns - window.start_ns, len(window.event_images)
    arrivals: list[tuple[int, Callable[[], Future[None] | None]]] = []
    for i, (image, stamp_ns) in enumerate(zip(window.frames, window.frame_stamps_ns, strict=True)):
        is_last = i + 1 == len(window.frames)
        take = partial(decoder.stream_frame, window.index, image, stamp_ns, is_last, options)
        arrivals.append((stamp_ns - window.start_ns, take))
        if is_last:
            arrivals.append((stamp_ns - window.start_ns, partial(decoder.begin, window.index, options)))
    for i, image in enumerate(window.event_images):
        draft = partial(decoder.stream_event_image, window.index, image, options)
        arrivals.append(((i + 1) * length // slices, draft))
    opened = time.perf_counter_ns()
    last_ns = opened + max((stamp - window.start_ns for stamp in window.frame_stamps_ns), default=length)
    for offset, arrive in sorted(arrivals, key=lambda arrival: arrival[0]):
        sleep_until(opened + offset)
        arrive()
    sleep_until(opened + length)
    # The time of an image that comes late counts as waiting, so the marks are the planned times.
    trace.mark("last_frame", last_ns)
    trace.mark("closed", opened + length)
    return decoder.caption(window, options, trace)


def sleep_until(at_ns: int) -> None:
    """Sleep until this time of `perf_counter_ns`."""
    time.sleep(max(0, at_ns - time.perf_counter_ns()) / 1e9)


class Lived(Waiting):
    """A decoder of crossspec_ros that lives through the window."""

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        caption = live(self.decoder, window, trace, replace(self.options, question=question))
        return Written(caption.token_ids, caption.accept_lengths)


def timed(decoder: Any, stack: ExitStack) -> Decoder[Window]:
    """Return captioning in real time: ours lives through the window, others begin at its last frame.

    The decoder is closed with the stack.
    """
    if hasattr(decoder, "close"):
        stack.enter_context(closing(decoder))
    if isinstance(decoder, PrefillHiddenDecoder):
        decoder = Lived(decoder)
    if isinstance(decoder, Lived):
        return lambda window, trace: decoder(window, QUESTION, trace)
    return _begun_at_last_frame(decoder)


def _begun_at_last_frame(answer: Baseline) -> Decoder[Window]:
    def run(window: Window, trace: Trace) -> Written:
        time.sleep(_IDLE_S)
        came_ns = time.perf_counter_ns()
        trace.mark("last_frame", came_ns)
        trace.mark("closed", came_ns + window.end_ns - max(window.frame_stamps_ns))
        return answer(window, QUESTION, trace)

    return run


def stream(
    decoder: PrefillHiddenDecoder, window: Window, options: Options = OPTIONS, frames: int | None = None
) -> float:
    """Let a decoder read the images of an open window, with the first `frames`, and wait for each step.

    Returns the seconds of rehearsing and preparing.
    """
    seconds = 0.0
    drafting = [decoder.stream_event_image(window.index, image, options) for image in window.event_images]
    for work in drafting:
        if work is not None:
            work.result()
    for shown, stamp_ns in list(zip(window.frames, window.frame_stamps_ns, strict=True))[:frames]:
        read = decoder.stream_frame(window.index, shown, stamp_ns, rehearsed=options)
        if read is not None:
            read.result()
        begun = time.perf_counter()
        wait_until_idle(decoder, window.index)
        seconds += time.perf_counter() - begun
    return seconds


def wait_until_idle(decoder: PrefillHiddenDecoder, index: int) -> None:
    """Wait until the engine has rehearsed and prepared the open window `index`."""
    live = decoder._live.find(index)
    while live is not None and live.handle is not None and live.handle.has_more:
        time.sleep(_POLL_S)
