"""Heads that a bench trains, from states of both models on windows that neither was trained on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from crossspec_lab.baselines.specvlm import SpecVLMHead
from crossspec_lab.heads.head import TargetReader
from crossspec_lab.train.head_training import HeadTraining, synthetic
from crossspec_lab.train.pairs import PairShards

Kind = TypeVar("Kind", bound=TargetReader)


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
