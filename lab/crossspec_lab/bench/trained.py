"""Draft heads that experiments train on the way, from states of both models on windows that neither saw."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import torch
from rich.progress import Progress

from crossspec_lab.baselines.specvlm import SpecVLMHead
from crossspec_lab.heads.head import Head, Sizes
from crossspec_lab.train.head_fit import Recipe, fit_head
from crossspec_lab.train.head_training import synthetic
from crossspec_lab.train.pairs import PairExtractor, PairShards, extract
from crossspec_lab.world.phrases import QUESTION
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.windows.window import Window

Kind = TypeVar("Kind", bound=Head)


@dataclass(frozen=True, eq=False)
class Trained:
    """Heads that learn `steps` steps on `windows` windows; states and checkpoints are kept in `work`, from
    where an interrupted training goes on. `models` is the digest of the pair."""

    pair: ModelPair
    models: str
    work: Path
    windows: int
    steps: int
    seed: int
    progress: Progress

    @cached_property
    def sizes(self) -> Sizes:
        """Sizes of the models that the heads are for."""
        return Sizes.of(self.pair.target, self.pair.draft)

    @property
    def note(self) -> str:
        """Note beside every figure of SpecVLM."""
        return (
            f"SpecVLM's head learned on {self.windows} windows in {self.steps} steps, the tiny pair's own "
            f"draft head on 4,096 windows. A part of what lies between them may be that."
        )

    @cached_property
    def specvlm(self) -> SpecVLMHead:
        """SpecVLM's head."""
        return self.head("specvlm", lambda: SpecVLMHead(self.sizes))

    def head(self, name: str, make: Callable[[], Kind]) -> Kind:
        """The head of this name, trained; the seed decides its first weights too."""
        torch.manual_seed(self.seed)
        head = make()
        head.load(self.pair.target)
        task = self.progress.add_task(f"training {name}", total=self.steps)

        def report(step: int, note: str) -> None:
            self.progress.update(task, completed=step)

        fit_head(head, self._pairs, Recipe(self.steps, seed=self.seed), self.work / name, report)
        self.progress.update(task, completed=self.steps)
        return head.eval().requires_grad_(False)

    def extracted(self, windows: Iterable[Window], folder: str, count: int) -> PairShards:
        """States of both models on the first `count` of these windows."""
        task = self.progress.add_task("asking both models", total=count)
        with closing(PairExtractor(self.pair, QUESTION)) as extractor:
            return extract(
                extractor,
                windows,
                self.work / folder,
                count,
                lambda done: self.progress.update(task, completed=done),
                {"models": self.models},
            )

    @cached_property
    def _pairs(self) -> PairShards:
        return self.extracted(synthetic(self.work, self.windows), "pairs", self.windows)
