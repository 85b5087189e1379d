"""Plots of the laboratory: bars with spreads, axes without frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from crossspec_lab.bench.decoders import LOSSY, OURS, marked
from crossspec_lab.bench.records import Record
from crossspec_lab.bench.statistics import spread

OURS_COLOUR, OTHERS_COLOUR, LOSSY_COLOUR = "#31a354", "#969696", "#fdae6b"


def wall_bars(axes: Axes, records: Mapping[str, Sequence[Record]]) -> None:
    """Draw the waits for a caption by decoder; ours and lossy ones have their own colours."""
    rows = {marked(name): spread([1e3 * one.wall_s for one in mine]) for name, mine in records.items()}
    colours = {name: LOSSY_COLOUR for name in rows if name.endswith(LOSSY)}
    wait_bars(axes, rows, {OURS: OURS_COLOUR} | colours)


def wait_bars(axes: Axes, rows: Mapping[str, Mapping[str, float]], colours: Mapping[str, str]) -> None:
    """Draw the spreads of waits for captions by decoder; `colours` has those of some decoders."""
    rows = dict(sorted(rows.items(), key=lambda row: -row[1]["median"]))
    middles, lows, highs = (
        np.array([row[name] for row in rows.values()]) for name in ("median", "p10", "p90")
    )
    ends, filled = [middles - lows, highs - middles], [colours.get(name, OTHERS_COLOUR) for name in rows]
    axes.barh(range(len(rows)), middles, xerr=ends, color=filled, ecolor="#404040", capsize=2)
    axes.set_yticks(range(len(rows)), list(rows), fontsize=8)
    for i, row in enumerate(rows.values()):
        axes.annotate(f" {row['median']:.0f} ms", (row["p90"], i), va="center", fontsize=8)
    axes.set_xlim(0, 1.12 * highs.max())
    axes.set_xlabel("ms from the last frame to the caption: median, 10th to 90th percentile", fontsize=9)
    bare(axes)


def bare(*several: Axes) -> None:
    """Take away the frame above and on the right."""
    for axes in several:
        axes.spines[["top", "right"]].set_visible(False)
