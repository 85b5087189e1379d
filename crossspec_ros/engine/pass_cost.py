"""What a pass of the target costs by the number of tokens that it reads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crossspec_ros.engine.runner import SIZES
from crossspec_ros.engine.session import Step
from crossspec_ros.engine.tree import DraftTree

_REPEATS = 5


def measured_seconds(step: Callable[[DraftTree], Step]) -> dict[int, float]:
    """Median seconds of passes over SIZES tokens; each of them reads one token and a chain."""
    runs: dict[int, list[float]] = {size: [] for size in SIZES}
    for _ in range(_REPEATS):
        # Size by size within each repeat: a machine that slows down slows all sizes.
        for size in SIZES:
            runs[size].append(step(DraftTree.filler(size - 1)).seconds)
    return {size: float(np.median(times)) for size, times in runs.items()}
