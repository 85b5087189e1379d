"""Setting of a bench: models, windows and their right captions, and what is trained on the way."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.progress import Progress

from crossspec_lab.bench.decoders import Models
from crossspec_lab.bench.held_out import held_out_windows
from crossspec_lab.bench.live import take_turns, timed
from crossspec_lab.bench.real_time import paced
from crossspec_lab.bench.recorded import recorded_windows
from crossspec_lab.bench.records import Log
from crossspec_lab.bench.report import Result
from crossspec_lab.bench.trained import Trained
from crossspec_lab.heads.head_files import fitting_heads
from crossspec_lab.world.phrases import caption
from crossspec_lab.world.scene import Scene
from crossspec_ros.errors import InputError
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import available
from crossspec_ros.models.video_llava import VideoLlava
from crossspec_ros.paths import tiny_models
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.grid import SECOND
from crossspec_ros.windows.window import Window


@dataclass(frozen=True)
class Setting:
    """Models that decoders are made of, windows with their scenes if these are known, and one more window,
    which warms decoders up. `period_s` is the length of a window."""

    models: Models
    trained: Trained
    windows: Sequence[tuple[Window, Scene | None]]
    warm: Window
    period_s: float
    progress: Progress

    @property
    def pair(self) -> ModelPair:
        """The pair of models."""
        return self.models.pair


class Bench(NamedTuple):
    """A bench writes records to a log, of which it makes figures, tables and plots.

    `published` is the number of windows of the published figures.
    """

    title: str
    measure: Callable[[Setting, Log], None]
    result: Callable[[Setting, Log], Result]
    published: int = 40


def check_windows(windows: int) -> None:
    """Raise InputError where there are none."""
    if windows < 1:
        raise InputError(f"--windows {windows} measures nothing: ask for at least 1")


def measured_pair(args: argparse.Namespace) -> ModelPair:
    """The pair that the arguments of a bench name, in float32."""
    models = args.models or tiny_models()
    return load_pair(models, args.threads, placement=available("float32", args.device), target=args.target)


def prepared(args: argparse.Namespace, work: Path, origin: Mapping[str, Any], progress: Progress) -> Setting:
    """Load models and make windows; the states and heads of a training go to the folder `work`."""
    check_windows(args.windows)
    pair = measured_pair(args)
    heads = fitting_heads(args.models or tiny_models(), args.target, pair.target, pair.draft)
    found: list[tuple[Window, Scene | None]] = []
    if args.recording:
        found += ((window, None) for window in recorded_windows(pair, args.recording, args.windows + 1))
    else:
        task = progress.add_task("rendering windows", total=args.windows + 1)
        for one in held_out_windows(pair, args.windows + 1):
            found.append(one)
            progress.advance(task)
    period_ns = round(args.period * SECOND)
    windows = [(paced(window, i, period_ns), scene) for i, (window, scene) in enumerate(found)]
    trained = Trained(pair, work, progress, origin)
    # Its head is trained on the way, for the tiny pair only.
    is_trained = isinstance(pair.target, VideoLlava) and pair.draft is not None and not args.target
    models = Models(pair, heads, (lambda: trained.specvlm) if is_trained else None, args.target)
    return Setting(models, trained, windows[: args.windows], windows[-1][0], args.period, progress)


def compare(
    setting: Setting,
    log: Log,
    condition: str,
    makers: Mapping[str, Callable[[], Any]],
) -> None:
    """Let decoders take turns on the windows, unless that was done; they are closed then."""
    windows = setting.windows
    if not log.begin(condition, len(makers) * len(windows)):
        return
    task = setting.progress.add_task(condition, total=len(makers) * len(windows))
    with ExitStack() as stack:
        decoders = {name: timed(make(), stack) for name, make in makers.items()}
        for decoder in decoders.values():
            decoder(setting.warm, Trace())
        for record in take_turns(decoders, (window for window, _ in windows), condition):
            scene = windows[record.window][1]
            text = setting.pair.target.tokenizer.decode(record.tokens).strip()
            log.add(replace(record, text=text, truth=caption(scene) if scene else ""))
            setting.progress.advance(task)
