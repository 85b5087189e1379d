"""Cost model of the target's forward passes, by the numbers of tokens and sequences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 129)
"""Measured numbers of tokens in a pass. Static passes have buffers of these sizes, and others are padded.
The last is the largest tree and the token before it."""
_FORGETTING = 0.02
"""Weight of one pass of the running system in the estimate for its size."""
_REPEATS = 5
"""Largest number of measured passes of each size."""
_ENOUGH_S = 0.25
"""Measured time after which a size needs no more passes."""


class PassCost:
    """T(b, n): seconds of a pass in which each of `b` sequences reads up to `n` tokens.

    `seconds` has the measured costs of one sequence by tokens, `shared` those of several sequences by their
    number. Other costs are interpolated. Passes of the running system correct the estimates. With padding
    (`is_static`), a pass costs as much as the next larger size. `rows` is the current number of sequences in
    a pass.
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
        """Return the seconds of passes over `tokens` tokens of each sequence (default: current `rows`)."""
        table = self._table(self.rows if rows is None else rows)
        within = np.minimum(tokens, self._sizes[-1])
        if self._is_static:
            within = self._sizes[np.searchsorted(self._sizes, within)]
        return np.interp(within, self._sizes, table) * np.maximum(np.divide(tokens, self._sizes[-1]), 1.0)

    def observe(self, tokens: int, seconds: float, rows: int = 1) -> None:
        """Correct the estimates of the nearest sizes by a pass of the running system."""
        if tokens > self._sizes[-1] or rows > self._rows[-1]:
            return
        right = int(np.clip(np.searchsorted(self._sizes, tokens), 1, len(self._sizes) - 1))
        span = self._sizes[right] - self._sizes[right - 1]
        weight = float(np.clip((tokens - self._sizes[right - 1]) / span, 0.0, 1.0))
        if self._is_static and tokens > 1:
            weight = 1.0
        # Clipped, so that one delayed pass does not distort the table.
        error = float(np.clip(seconds / self.seconds(tokens, rows), 0.5, 2.0)) - 1.0
        at = int(np.searchsorted(self._rows, rows))
        self._seconds[at, right - 1] *= 1 + _FORGETTING * (1 - weight) * error
        self._seconds[at, right] *= 1 + _FORGETTING * weight * error

    def parts(self, sizes: Sequence[int]) -> list[list[int]]:
        """Group sequences with `sizes` tokens into passes of minimal total cost; returns lists of indices.

        A pass pads its sequences to the longest, so sequences of similar sizes share a pass.
        """
        order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
        # By dynamic programming: the least cost of the first i sequences, and the start of its last pass.
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
        """Return the current estimate of seconds for one sequence, by size."""
        return {int(n): float(value) for n, value in zip(self._sizes, self._seconds[0], strict=True)}

    def _table(self, rows: int) -> np.ndarray:
        """Return seconds by size for `rows` sequences, extrapolated in proportion."""
        at = float(np.interp(rows, self._rows, range(len(self._rows))))
        left, right = self._seconds[math.floor(at)], self._seconds[math.ceil(at)]
        return max(1.0, rows / self._rows[-1]) * (left + at % 1 * (right - left))


def measure_cost(read: Callable[[int, int], float], is_static: bool, batches: Sequence[int] = ()) -> PassCost:
    """Measure the cost model as medians: `read(sequences, tokens)` runs a pass and returns its seconds.

    Long passes run fewer times, because disturbances are a smaller part of them.
    """
    rows = (1, *batches)
    runs: dict[tuple[int, int], list[float]] = {(b, n): [] for b in rows for n in SIZES}
    for _ in range(_REPEATS):
        # Each repeat measures all sizes, so that a slowdown of the machine affects all of them.
        for (b, n), times in runs.items():
            if sum(times) < _ENOUGH_S:
                times.append(read(b, n))
    tables = {b: {n: float(np.median(runs[b, n])) for n in SIZES} for b in rows}
    return PassCost(tables[1], is_static, {b: tables[b] for b in batches})
