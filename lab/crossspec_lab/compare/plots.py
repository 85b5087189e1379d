"""Plots of the laboratory: bars with spreads, axes without frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

OURS_COLOUR, OTHERS_COLOUR, LOSSY_COLOUR = "#31a354", "#969696", "#fdae6b"
WAIT_LABEL = "ms from the last frame to the caption: median, 10th to 90th percentile"


def bars(
    axes: Axes,
    rows: Mapping[str, Mapping[str, float]],
    label: str,
    colour: Callable[[str], str] = lambda name: OTHERS_COLOUR,
    height: float = 0.8,
) -> None:
    """A bar for each named row: a middle, which is its first value, and both ends of an interval."""
    spreads = [tuple(row.values()) for row in rows.values()]
    middles, lows, highs = (np.array(values) for values in zip(*spreads, strict=True))
    ends = np.abs([middles - lows, highs - middles])
    colours = [colour(name) for name in rows]
    axes.barh(range(len(rows)), middles, height, xerr=ends, color=colours, ecolor="#404040", capsize=2)
    axes.set_yticks(range(len(rows)), list(rows), fontsize=9)
    axes.set_xlabel(label, fontsize=9)
    bare(axes)


def mode_bars(axes: Axes, modes: Mapping[str, Any], names: Mapping[str, str]) -> None:
    """Waits for captions by decoder, the quickest above; `names` shows each, and ours is its first."""
    rows = {shown: modes[name]["last_frame_to_caption_ms"] for name, shown in names.items()}
    ours = next(iter(rows))
    rows = dict(sorted(rows.items(), key=lambda row: row[1]["median"]))
    bars(axes, rows, WAIT_LABEL, lambda name: OURS_COLOUR if name == ours else OTHERS_COLOUR)
    for i, row in enumerate(rows.values()):
        axes.annotate(f" {row['median']:.0f} ms", (row["p90"], i), va="center", fontsize=9)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.12 * max(row["p90"] for row in rows.values()))


def bare(*several: Axes) -> None:
    """Take away the frame above and on the right."""
    for axes in several:
        axes.spines[["top", "right"]].set_visible(False)
