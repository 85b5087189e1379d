"""Decoders take turns on the same windows in one run; each outcome becomes a record."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from crossspec_lab.bench.harness import Run, in_turns
from crossspec_lab.bench.held_out import timed
from crossspec_lab.bench.records import Log, Record
from crossspec_lab.bench.setting import Setting
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


def compare(
    setting: Setting,
    experiment: int,
    condition: str,
    ways: Mapping[str, Callable[[], Any]],
    windows: Sequence[tuple[Window, str]],
    warm: Window,
    more: Callable[[str, Run, float], Mapping[str, Any]] = lambda way, run, cpu_s: {},
) -> Log:
    """Let decoders take turns on the windows, unless that was done; `ways` makes them, and they are closed.

    Each captions the window `warm` first, which is none of the others. `more` gives further figures of a run,
    from the decoder's name, the run, and the processor time that it took.
    """
    log = setting.log(experiment)
    if not log.begin(condition, len(ways), len(windows)):
        return log
    task = setting.progress.add_task(f"{experiment}: {condition}", total=len(ways) * len(windows))
    with ExitStack() as stack:
        decoders = {name: timed(make(), stack) for name, make in ways.items()}
        for decoder in decoders.values():
            decoder(warm, Trace())
        for name, (window, truth) in in_turns(decoders, windows):
            cpu_s = time.process_time()
            run = Run.of(decoders[name], window)
            figures = more(name, run, time.process_time() - cpu_s)
            marks, tokens = run.trace.marks, run.written.tokens
            log.add(
                Record(
                    experiment,
                    condition,
                    name,
                    window.index,
                    setting.pair.target.tokenizer.decode(tokens).strip(),
                    tokens,
                    run.written.accept_lengths,
                    (run.answered_ns - marks["last_frame"]) / 1e9,
                    max(0, run.answered_ns - marks["closed"]) / 1e9,
                    (run.first_token_ns - marks["last_frame"]) / 1e9,
                    run.trace.stages | {"hidden": run.trace.hidden},
                    truth,
                    figures,
                )
            )
            setting.progress.advance(task)
    return log
