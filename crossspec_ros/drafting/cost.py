"""What a pass of the target costs by the number of tokens it reads, measured and kept up to date."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

_FORGETTING = 0.02


class VerifyCost:
    """T_verify(n): seconds of a pass over `n` tokens, interpolated between measured sizes.

    Where passes are padded (`is_static`), each costs what the next size does.
    """

    def __init__(self, seconds: Mapping[int, float], is_static: bool = False) -> None:
        self._is_static = is_static
        self._sizes = np.array(sorted(seconds), float)
        self._seconds = np.array([seconds[size] for size in sorted(seconds)], float)

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
