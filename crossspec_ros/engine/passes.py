"""Passes over several windows at a time, in as few passes as pay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from crossspec_ros.engine.cuda_stream import CudaStream
from crossspec_ros.engine.pass_cost import PassCost
from crossspec_ros.engine.runner import Reading, Runner
from crossspec_ros.models.base import VideoTarget

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class PassOutput:
    """Result of a pass over a `reading`; good until the next pass.

    `hidden` is (n, width) if the runner has states, `tapped` (n, taps * width) if layers are tapped, `logits`
    (k, vocabulary). The pass had `rows` sequences, each as long as the longest, `tokens`. `begun` and `ended`
    are marks of the stream.
    """

    reading: Reading
    hidden: torch.Tensor | None
    tapped: torch.Tensor | None
    logits: Any
    rows: int
    tokens: int
    begun: Any
    ended: Any


class Passes:
    """Encodes frames and reads tokens of several windows together.

    Before `cost` is measured, each window has a pass of its own. For one thread.
    """

    def __init__(self, target: VideoTarget, runner: Runner, stream: CudaStream) -> None:
        self._target, self._runner, self._stream = target, runner, stream
        self.cost: PassCost | None = None

    def encode(self, units: Sequence[np.ndarray]) -> list[Any]:
        """Return the features of each unit (n, H, W, 3); complete ones of one size go through the tower
        together."""
        alike: dict[object, list[int]] = {}
        for i, unit in enumerate(units):
            is_whole = len(unit) == self._target.spec.frames_per_unit
            alike.setdefault(unit.shape if is_whole else i, []).append(i)
        features: dict[int, Any] = {}
        for group in alike.values():
            made = self._target.encode(np.concatenate([units[i] for i in group]))
            features |= dict(zip(group, made, strict=True))
        return [features[i] for i in range(len(units))]

    def groups(self, readings: Sequence[Reading]) -> list[list[int]]:
        """Return the readings of each pass, as indices, so that all passes take the least time."""
        cost = self.cost
        if cost is None:
            return [[i] for i in range(len(readings))]
        fitting = [i for i, one in enumerate(readings) if self._runner.fits(one)]
        parts = cost.parts([len(readings[i]) for i in fitting])
        others = [[i] for i in range(len(readings)) if i not in fitting]
        return others + [[fitting[j] for j in part] for part in parts]

    def read(self, group: Sequence[Reading]) -> list[PassOutput]:
        """Return the outputs of one pass over these."""
        begun, has_states = self._stream.mark(), self._runner.has_states
        states, tapped = zip(*self._runner.read(group), strict=True)
        logits = self._logits(states, group) if has_states else states
        ended = self._stream.mark()
        rows, tokens = len(group), max(map(len, group))
        return [
            PassOutput(one, hidden if has_states else None, taps, own, rows, tokens, begun, ended)
            for one, hidden, taps, own in zip(group, states, tapped, logits, strict=True)
        ]

    def _logits(self, states: Sequence[torch.Tensor], group: Sequence[Reading]) -> Sequence[torch.Tensor]:
        import torch

        # The head's weights are read once for all.
        hidden = torch.cat([own[len(own) - one.logits :] for own, one in zip(states, group, strict=True)])
        logits = self._target.logits(hidden) if len(hidden) else hidden
        return logits.split([one.logits for one in group])
