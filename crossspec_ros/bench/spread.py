"""What is told of figures that were measured several times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def spread(values: Sequence[float] | np.ndarray) -> dict[str, float]:
    """The median and the outer deciles."""
    low, middle, high = np.percentile(np.asarray(values), (10, 50, 90))
    return {"median": float(middle), "p10": float(low), "p90": float(high)}
