"""How sure a figure is: bootstrap intervals, and paired tests of one way against another.

Everything is drawn window by window, for the windows are what another run would have others of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

_DRAWS = 2000


@dataclass(frozen=True)
class Interval:
    """A figure and the 95 % interval of a bootstrap over windows."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{number(self.value)} ({number(self.low)} to {number(self.high)})"


def number(value: float) -> str:
    """A figure with three digits that count."""
    if value == 0 or not np.isfinite(value):
        return f"{value:g}"
    digits = max(0, 2 - int(np.floor(np.log10(abs(value)))))
    return f"{value:.{min(digits, 4)}f}"


def interval(
    of: Callable[..., float], *samples: Sequence[float], seed: int = 0, draws: int = _DRAWS
) -> Interval:
    """`of` the samples, which are paired by window, with the interval of as many windows drawn again."""
    arrays = [np.asarray(sample, float) for sample in samples]
    windows = len(arrays[0])
    if windows == 0:
        return Interval(float("nan"), float("nan"), float("nan"))
    rng = np.random.default_rng(seed)
    drawn = [of(*(array[rows] for array in arrays)) for rows in rng.integers(0, windows, (draws, windows))]
    low, high = np.percentile(drawn, (2.5, 97.5))
    return Interval(float(of(*arrays)), float(low), float(high))


def median(sample: Sequence[float], seed: int = 0) -> Interval:
    """The median of a sample."""
    return interval(lambda values: float(np.median(values)), sample, seed=seed)


def mean(sample: Sequence[float], seed: int = 0) -> Interval:
    """The mean of a sample."""
    return interval(lambda values: float(np.mean(values)), sample, seed=seed)


def ratio(over: Sequence[float], under: Sequence[float], seed: int = 0) -> Interval:
    """The sum of one sample as a share of the other's, such as tokens and passes."""
    return interval(lambda a, b: float(np.sum(a) / np.sum(b)), over, under, seed=seed)


def speed(others: Sequence[float], mine: Sequence[float], seed: int = 0) -> Interval:
    """The median of how many times as long each window took the other way."""
    return median(np.asarray(others, float) / np.asarray(mine, float), seed)


def paired_p(some: Sequence[float], others: Sequence[float]) -> float:
    """The probability that as large a difference comes by chance (Wilcoxon's signed-rank test, two-sided);
    1 where no window differs."""
    differences = np.asarray(some, float) - np.asarray(others, float)
    if not np.any(differences):
        return 1.0
    return float(stats.wilcoxon(differences).pvalue)
