"""Ways take turns on the same windows in one run; what each did becomes a record.

The order of the turns rotates, so that a machine that drifts favours none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any

from crossspec_lab.baselines.written import Baseline, Written
from crossspec_lab.compare.held_out import live
from crossspec_lab.experiments.records import Log, Record
from crossspec_lab.experiments.setting import Setting
from crossspec_lab.world.grammar import QUESTION
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

_IDLE_S = 0.1
"""Before a way that begins at the last frame: a live one too comes from idling."""

Run = Callable[[Window, Trace], Written]
"""Captions a window, in real time or at once; marks "last_frame" and "closed" in the trace."""


def compare(
    setting: Setting,
    experiment: int,
    condition: str,
    ways: Mapping[str, Callable[[], Any]],
    windows: Sequence[tuple[Window, str]],
    warm: Window,
    before: Callable[[Window], object] = lambda _: None,
) -> Log:
    """Let ways take turns on the windows, unless that was done; `ways` make decoders, which are closed.

    `warm`, which is none of them, comes first, for what is slow the first time. `before` is called ahead of
    each turn.
    """
    log = setting.log(experiment)
    if not log.begin(condition, len(ways), len(windows)):
        return log
    names = list(ways)
    task = setting.progress.add_task(f"{experiment}: {condition}", total=len(names) * len(windows))
    with ExitStack() as stack:
        runs = {name: running(make(), stack) for name, make in ways.items()}
        for run in runs.values():
            before(warm)
            run(warm, Trace())
        for i, (window, truth) in enumerate(windows):
            for name in names[i % len(names) :] + names[: i % len(names)]:
                before(window)
                log.add(record(setting, experiment, condition, name, runs[name], window, truth))
                setting.progress.advance(task)
    return log


def running(decoder: Any, stack: ExitStack) -> Run:
    """How a decoder captions: ours lives through the window, others get it when its last frame has come."""
    if isinstance(decoder, PrefillHiddenDecoder):
        stack.enter_context(closing(decoder))
        return lived(decoder)
    if hasattr(decoder, "close"):
        stack.enter_context(closing(decoder))
    return begun_at_last_frame(decoder)


def lived(decoder: PrefillHiddenDecoder) -> Run:
    """Reads the window while it is open."""

    def run(window: Window, trace: Trace) -> Written:
        caption = live(decoder, window, trace, QUESTION)
        return Written(caption.token_ids, caption.accept_lengths)

    return run


def begun_at_last_frame(answer: Baseline) -> Run:
    """Gets the window when its last frame has come."""

    def run(window: Window, trace: Trace) -> Written:
        time.sleep(_IDLE_S)
        came_ns = time.perf_counter_ns()
        trace.mark("last_frame", came_ns)
        trace.mark("closed", came_ns + window.end_ns - max(window.frame_stamps_ns))
        return answer(window, QUESTION, trace)

    return run


def record(
    setting: Setting, experiment: int, condition: str, way: str, run: Run, window: Window, truth: str
) -> Record:
    """What a way did with a window."""
    trace = Trace()
    written = run(window, trace)
    now_ns, marks = time.perf_counter_ns(), trace.marks
    # Not when it is told, which ours does at the close, nor when all is tidied up.
    ended_ns = max((span.end_ns for span in trace.spans if span.stage == "answer"), default=now_ns)
    firsts = [span.end_ns for span in trace.spans if span.stage == "answer_first"]
    first_ns = min(firsts, default=marks.get("first_token", ended_ns))
    return Record(
        experiment,
        condition,
        way,
        window.index,
        setting.pair.target.tokenizer.decode(written.tokens).strip(),
        written.tokens,
        written.accept_lengths,
        (ended_ns - marks["last_frame"]) / 1e9,
        max(0, ended_ns - marks["closed"]) / 1e9,
        (first_ns - marks["last_frame"]) / 1e9,
        trace.stages | {"hidden": trace.hidden},
        truth,
    )
