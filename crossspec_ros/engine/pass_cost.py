"""Pass cost: seconds of a pass of the target, by its tokens and the sequences that share it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 129)
"""Tokens of the passes that are measured, and have buffers of their own; others are padded to the next of
these. The last is the largest tree and the token before it."""
_FORGETTING = 0.02
"""Share of a pass of the running system in the belief about its size."""
_REPEATS = 5
"""Measured passes of each size, at most."""
_ENOUGH_S = 0.25
"""Time of a size's passes after which no more are made."""


class PassCost:
    """T(b, n): seconds of a pass in which each of `b` sequences reads up to `n` tokens.

    Measured for one sequence (`seconds`, by tokens) and for some that share a pass (`shared`, by their
    number), interpolated between, and corrected by the passes of the running system. Where passes are padded
    (`is_static`), each costs what the next size does. `rows` is how many sequences share a pass now.
    """

    def __init__(
        self,
        seconds: Mapping[int, float],
        is_static: bool = False,
        shared: Mapping[int, Mapping[int, float]] = MappingProxyType({}),
    ) -> None:
        self._is_static = is_static
        self._sizes = np.array(sorted(seconds), float)
        tables = {1: seconds, **shared}
        self._rows = np.array(sorted(tables))
        self._seconds = np.array([[tables[b][int(n)] for n in self._sizes] for b in self._rows], float)
        self.rows = 1

    def seconds(self, tokens: np.ndarray | int, rows: int | None = None) -> np.ndarray:
        """Return the cost of a pass over `tokens` of each; beyond the largest measured size in proportion."""
        table = self._table(self.rows if rows is None else rows)
        within = np.minimum(tokens, self._sizes[-1])
        if self._is_static:
            within = self._sizes[np.searchsorted(self._sizes, within)]
        return np.interp(within, self._sizes, table) * np.maximum(np.divide(tokens, self._sizes[-1]), 1.0)

    def observe(self, tokens: int, seconds: float, rows: int = 1) -> None:
        """Let a pass of the running system correct the sizes next to it, a little."""
        if tokens > self._sizes[-1] or rows > self._rows[-1]:
            return
        right = int(np.clip(np.searchsorted(self._sizes, tokens), 1, len(self._sizes) - 1))
        span = self._sizes[right] - self._sizes[right - 1]
        weight = float(np.clip((tokens - self._sizes[right - 1]) / span, 0.0, 1.0))
        if self._is_static and tokens > 1:
            weight = 1.0
        # One pass that the machine held up must not throw the table over.
        error = float(np.clip(seconds / self.seconds(tokens, rows), 0.5, 2.0)) - 1.0
        at = int(np.searchsorted(self._rows, rows))
        self._seconds[at, right - 1] *= 1 + _FORGETTING * (1 - weight) * error
        self._seconds[at, right] *= 1 + _FORGETTING * weight * error

    def parts(self, sizes: Sequence[int]) -> list[list[int]]:
        """Passes that read so many tokens of each sequence in the least time, as indices of `sizes`.

        Sequences of like sizes share a pass: each is padded to the longest.
        """
        order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
        # The best for the first i, and where its last pass begins.
        best, begins = [0.0], [0]
        for end in range(1, len(order) + 1):
            costs = {
                begin: best[begin] + float(self.seconds(sizes[order[begin]], end - begin))
                for begin in range(max(0, end - int(self._rows[-1])), end)
            }
            begins.append(min(costs, key=lambda begin: costs[begin]))
            best.append(costs[begins[-1]])
        passes: list[list[int]] = []
        end = len(order)
        while end:
            passes.append(order[begins[end] : end])
            end = begins[end]
        return passes

    def table(self) -> dict[int, float]:
        """Return the present estimate of seconds of one sequence by size."""
        return {int(n): float(value) for n, value in zip(self._sizes, self._seconds[0], strict=True)}

    def _table(self, rows: int) -> np.ndarray:
        """Return seconds by size for `rows` sequences; for more than were measured in proportion."""
        place = float(np.interp(rows, self._rows, range(len(self._rows))))
        left, right = self._seconds[math.floor(place)], self._seconds[math.ceil(place)]
        return max(1.0, rows / self._rows[-1]) * (left + place % 1 * (right - left))


def measured_cost(
    read: Callable[[int, int], float], is_static: bool, batches: Sequence[int] = ()
) -> PassCost:
    """Return the cost by medians of passes: `read(sequences, tokens)` makes one and returns its seconds.

    Long passes are measured less often, because disturbances are a smaller part of them.
    """
    rows = (1, *batches)
    runs: dict[tuple[int, int], list[float]] = {(b, n): [] for b in rows for n in SIZES}
    for _ in range(_REPEATS):
        # Size by size within each repeat: a machine that slows down slows all sizes.
        for (b, n), times in runs.items():
            if sum(times) < _ENOUGH_S:
                times.append(read(b, n))
    tables = {b: {n: float(np.median(runs[b, n])) for n in SIZES} for b in rows}
    return PassCost(tables[1], is_static, {b: tables[b] for b in batches})
