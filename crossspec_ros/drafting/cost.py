"""What a pass of the target costs by the number of tokens it reads, measured and kept up to date."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np
import torch

from crossspec_ros.engine.runner import SIZES
from crossspec_ros.engine.session import TargetSession
from crossspec_ros.engine.tree import DraftTree

_REPEATS = 5
_FORGETTING = 0.02


class VerifyCost:
    """T_verify(n): seconds of a pass over `n` tokens, interpolated between measured sizes.

    Where passes are padded (`is_static`), each costs what the next size does.
    """

    def __init__(self, seconds: Mapping[int, float], is_static: bool = False) -> None:
        self._is_static = is_static
        self._sizes = np.array(sorted(seconds), float)
        self._seconds = np.array([seconds[size] for size in sorted(seconds)], float)

    @classmethod
    @torch.inference_mode()
    def measured(cls, session: TargetSession, is_static: bool = False) -> VerifyCost:
        """Measure on a session whose question has been put, so that the context has its usual length."""
        runs: dict[int, list[float]] = {size: [] for size in SIZES}
        for _ in range(_REPEATS):
            # Size by size within each repeat: a machine that slows down slows all sizes.
            for size in SIZES:
                session.commit((), 0)
                chain = DraftTree.filler(size - 1)
                started = time.perf_counter()
                session.verify(chain).argmax(-1).tolist()
                runs[size].append(time.perf_counter() - started)
        return cls({size: float(np.median(times)) for size, times in runs.items()}, is_static)

    def seconds(self, tokens: np.ndarray | int) -> np.ndarray:
        """The cost of a pass over so many tokens; beyond the largest measured size in proportion."""
        last = self._seconds[-1] * np.maximum(np.asarray(tokens) / self._sizes[-1], 1.0)
        within = np.minimum(tokens, self._sizes[-1])
        if self._is_static:
            within = self._sizes[np.searchsorted(self._sizes, within)]
        return np.where(
            np.asarray(tokens) > self._sizes[-1], last, np.interp(within, self._sizes, self._seconds)
        )

    def observe(self, tokens: int, seconds: float) -> None:
        """Let a pass of the running system correct the sizes next to it, a little."""
        if tokens > self._sizes[-1]:
            return
        right = int(np.clip(np.searchsorted(self._sizes, tokens), 1, len(self._sizes) - 1))
        span = self._sizes[right] - self._sizes[right - 1]
        weight = float(np.clip((tokens - self._sizes[right - 1]) / span, 0.0, 1.0))
        if self._is_static and tokens > 1:
            weight = 1.0
        # One pass that the machine held up must not throw the table over.
        error = float(np.clip(seconds / self.seconds(tokens), 0.5, 2.0)) - 1.0
        self._seconds[right - 1] *= 1 + _FORGETTING * (1 - weight) * error
        self._seconds[right] *= 1 + _FORGETTING * weight * error

    def table(self) -> dict[int, float]:
        """Seconds by size, as they are believed now."""
        return {int(size): float(value) for size, value in zip(self._sizes, self._seconds, strict=True)}
