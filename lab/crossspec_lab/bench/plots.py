"""Plots of the laboratory: bars with spreads, axes without frames."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from crossspec_lab.bench.decoders import LOSSY, OURS

_OURS, _OTHERS, _LOSSY = "#31a354", "#969696", "#fdae6b"


def wait_bars(axes: Axes, rows: Mapping[str, Mapping[str, float]], ours: str = OURS) -> None:
    """Draw the spreads of waits for captions by decoder; `ours` and lossy ones have their own colours."""
    rows = dict(sorted(rows.items(), key=lambda row: -row[1]["median"]))
    middles, lows, highs = (
        np.array([row[name] for row in rows.values()]) for name in ("median", "p10", "p90")
    )
    filled = [_OURS if name == ours else _LOSSY if name.endswith(LOSSY) else _OTHERS for name in rows]
    ends = [middles - lows, highs - middles]
    axes.barh(range(len(rows)), middles, xerr=ends, color=filled, ecolor="#404040", capsize=2)
    axes.set_yticks(range(len(rows)), list(rows), fontsize=8)
    for i, row in enumerate(rows.values()):
        axes.annotate(f" {row['median']:.0f} ms", (row["p90"], i), va="center", fontsize=8)
    axes.set_xlim(0, 1.12 * highs.max())
    axes.set_xlabel("ms from the last frame to the caption: median, 10th to 90th percentile", fontsize=9)
    bare(axes)


def bare(*several: Axes) -> None:
    """Remove the frame above and on the right."""
    for axes in several:
        axes.spines[["top", "right"]].set_visible(False)
