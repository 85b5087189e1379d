"""Passes: what several windows need of the device at a time, in as few passes as pay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from crossspec_ros.engine.cuda_stream import CudaStream
from crossspec_ros.engine.pass_cost import PassCost
from crossspec_ros.engine.runner import Outputs, Reading, Runner
from crossspec_ros.models.base import VideoTarget

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class PassOutput:
    """What a pass over a `reading` gave its window; good until the next pass.

    `hidden` is (n, width) if the runner has states, `tapped` (n, taps * width) if layers are tapped, `logits`
    (k, vocabulary). The pass had so many `rows`, each as long as the longest, `tokens`. `begun` and `ended`
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
        """Return the features of each unit (n, H, W, 3); whole ones of one size go through the tower
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

    def groups(self, readings: Sequence[Reading]) -> Iterator[list[int]]:
        """Yield the readings of each pass, as indices, so that all passes take the least time."""
        fitting = [i for i, one in enumerate(readings) if self.cost is not None and self._runner.fits(one)]
        yield from ([i] for i in range(len(readings)) if i not in fitting)
        if self.cost is not None:
            for part in self.cost.parts([len(readings[i]) for i in fitting]):
                yield [fitting[j] for j in part]

    def read(self, group: Sequence[Reading]) -> list[PassOutput]:
        """Return what one pass over these gives each."""
        begun = self._stream.mark()
        outputs, has_states = self._runner.read(group), self._runner.has_states
        logits = self._logits(outputs, group) if has_states else [made for made, _ in outputs]
        ended = self._stream.mark()
        rows, tokens = len(group), max(map(len, group))
        return [
            PassOutput(one, states if has_states else None, tapped, own, rows, tokens, begun, ended)
            for one, (states, tapped), own in zip(group, outputs, logits, strict=True)
        ]

    def _logits(self, outputs: Sequence[Outputs], group: Sequence[Reading]) -> Sequence[torch.Tensor]:
        import torch

        hidden = [states[len(states) - one.logits :] for (states, _), one in zip(outputs, group, strict=True)]
        # The head's weights are read once for all.
        wanted = torch.cat(hidden)
        logits = self._target.logits(wanted) if len(wanted) else wanted
        return logits.split([one.logits for one in group])
