"""Setting of all experiments: models, windows of drives that training never saw, and where results go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.progress import Progress

from crossspec_lab.bench.decoders import Models
from crossspec_lab.bench.records import Log
from crossspec_lab.bench.trained import Trained
from crossspec_lab.heads.head import Head
from crossspec_lab.world.phrases import caption
from crossspec_lab.world.scene import Scene
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.windows.window import Window


@dataclass(frozen=True)
class Size:
    """Amounts to measure: held-out `windows` of the comparisons, of each number of frames, of each stream
    and of the ablations; windows and steps of what is trained on the way."""

    windows: int
    frame_windows: int
    stream_windows: int
    ablation_windows: int
    train_windows: int
    train_steps: int


QUICK = Size(4, 1, 4, 2, 24, 25)
FULL = Size(40, 24, 30, 24, 512, 400)


@dataclass(frozen=True)
class Setting:
    """The pair, its draft `heads`, those that are trained on the way, and `windows` with what is true of
    them; `warm` is none of them. Results go to the folder `out`."""

    pair: ModelPair
    heads: Sequence[Head]
    trained: Trained
    windows: list[tuple[Window, Scene]]
    warm: Window
    size: Size
    seed: int
    out: Path
    progress: Progress

    @property
    def models(self) -> Models:
        """Models that decoders are made of."""
        return Models(self.pair, self.heads, lambda: self.trained.specvlm)

    def log(self, experiment: int) -> Log:
        """The raw results of an experiment, as far as they are there."""
        return Log(self.out / "raw" / f"experiment_{experiment}.jsonl")

    def some(self, count: int) -> list[tuple[Window, str]]:
        """The first windows and what is true of them, in words."""
        return [(window, caption(scene)) for window, scene in self.windows[:count]]
