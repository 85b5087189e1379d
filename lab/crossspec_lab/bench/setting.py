"""Setting of a bench: models, windows with their right captions, and heads that the bench trains."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from rich.progress import Progress

from crossspec_lab.baselines.specvlm import SpecVLMHead
from crossspec_lab.bench.decoders import Models
from crossspec_lab.bench.input_windows import held_out_windows, recorded_windows
from crossspec_lab.bench.live import take_turns, timed
from crossspec_lab.bench.real_time import paced
from crossspec_lab.bench.records import Log, Record
from crossspec_lab.bench.report import Result
from crossspec_lab.heads.head_files import fitting_heads
from crossspec_lab.train.head_training import HeadTraining, Kind, synthetic
from crossspec_lab.train.pairs import PairShards
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


@dataclass(frozen=True, eq=False)
class Trained(HeadTraining):
    """Heads that learn `steps` steps on `windows` windows."""

    windows: int = 512
    steps: int = 400

    @property
    def note(self) -> str:
        """Note on every figure of SpecVLM."""
        return (
            f"SpecVLM's head learned on {self.windows} windows in {self.steps} steps, the tiny pair's own "
            f"draft head on 4,096 windows. A part of the difference may come from that."
        )

    @cached_property
    def specvlm(self) -> SpecVLMHead:
        """SpecVLM's head."""
        return self.head("specvlm", lambda: SpecVLMHead(self.sizes))

    def head(self, name: str, make: Callable[[], Kind]) -> Kind:
        """Return the head of this name, trained."""
        return self.fit(name, make, self._pairs, self.steps)[0]

    @cached_property
    def _pairs(self) -> PairShards:
        return self.extracted(synthetic(self.work, self.windows), "pairs", self.windows)


@dataclass(frozen=True)
class Setting:
    """Models of the decoders, and windows of `period_s`, with their scenes if they are synthetic.

    The window `warm` warms decoders up.
    """

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


class Part(NamedTuple):
    """A part of a bench: the records under a condition, and their number. An interrupted part begins anew."""

    condition: str
    size: int
    records: Iterator[Record]


class Bench(NamedTuple):
    """A bench measures its parts, and makes figures, tables and plots of their records."""

    title: str
    parts: Callable[[Setting], Iterable[Part]]
    result: Callable[[Setting, Log], Result]


def measure(setting: Setting, log: Log, parts: Iterable[Part]) -> None:
    """Measure the parts that the log lacks."""
    for condition, size, records in parts:
        if log.begin(condition, size):
            task = setting.progress.add_task(condition, total=size)
            for record in records:
                log.add(record)
                setting.progress.advance(task)


def check_windows(windows: int) -> None:
    """Raise InputError without windows."""
    if windows < 1:
        raise InputError(f"--windows {windows} measures nothing: set at least 1")


def measured_pair(args: argparse.Namespace) -> ModelPair:
    """Load the pair that the arguments of a bench name, in float32."""
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
    # The bench trains SpecVLM's head for the tiny pair only.
    is_trained = isinstance(pair.target, VideoLlava) and pair.draft is not None and not args.target
    models = Models(pair, heads, (lambda: trained.specvlm) if is_trained else None, args.target)
    return Setting(models, trained, windows[: args.windows], windows[-1][0], args.period, progress)


def compare(setting: Setting, condition: str, makers: Mapping[str, Callable[[], Any]]) -> Part:
    """Let decoders take turns on the windows; they are closed then."""
    return Part(condition, len(makers) * len(setting.windows), _compared(setting, condition, makers))


def _compared(setting: Setting, condition: str, makers: Mapping[str, Callable[[], Any]]) -> Iterator[Record]:
    windows = setting.windows
    with ExitStack() as stack:
        decoders = {name: timed(make(), stack) for name, make in makers.items()}
        for decoder in decoders.values():
            decoder(setting.warm, Trace())
        for record in take_turns(decoders, (window for window, _ in windows), condition):
            scene = windows[record.window][1]
            text = setting.pair.target.tokenizer.decode(record.tokens).strip()
            yield replace(record, text=text, truth=caption(scene) if scene else "")
