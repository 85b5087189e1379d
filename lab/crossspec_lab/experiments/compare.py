"""Ways take turns on the same windows in one run; what each did becomes a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from crossspec_lab.compare.harness import Run, in_turns
from crossspec_lab.compare.held_out import timed
from crossspec_lab.experiments.records import Log, Record
from crossspec_lab.experiments.setting import Setting
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


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
    task = setting.progress.add_task(f"{experiment}: {condition}", total=len(ways) * len(windows))
    with ExitStack() as stack:
        decoders = {name: timed(make(), stack) for name, make in ways.items()}
        for decoder in decoders.values():
            before(warm)
            decoder(warm, Trace())
        for name, (window, truth) in in_turns(decoders, windows):
            before(window)
            run = Run.of(decoders[name], window)
            log.add(record(setting, experiment, condition, name, window, truth, run))
            setting.progress.advance(task)
    return log


def record(
    setting: Setting, experiment: int, condition: str, way: str, window: Window, truth: str, run: Run
) -> Record:
    """Outcome of a decoder on a window."""
    marks, tokens = run.trace.marks, run.written.tokens
    return Record(
        experiment,
        condition,
        way,
        window.index,
        setting.pair.target.tokenizer.decode(tokens).strip(),
        tokens,
        run.written.accept_lengths,
        (run.answered_ns - marks["last_frame"]) / 1e9,
        max(0, run.answered_ns - marks["closed"]) / 1e9,
        (run.first_token_ns - marks["last_frame"]) / 1e9,
        run.trace.stages | {"hidden": run.trace.hidden},
        truth,
    )
