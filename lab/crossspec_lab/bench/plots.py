"""Plots of the laboratory: bars with spreads, and the timeline of a window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from crossspec_lab.bench.decoders import LOSSY, OURS
from crossspec_ros.telemetry.trace import ROWS, STAGE_COLOURS

_OURS, _OTHERS, _LOSSY = "#31a354", "#969696", "#fdae6b"


def wait_bars(rows: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draw the spreads of waits for captions by decoder; ours and lossy ones have their own colours."""
    figure = Figure(figsize=(9, 0.8 + 0.3 * len(rows)), layout="constrained")
    axes, rows = figure.subplots(), dict(sorted(rows.items(), key=lambda row: -row[1]["median"]))
    middles, lows, highs = (
        np.array([row[name] for row in rows.values()]) for name in ("median", "p10", "p90")
    )
    filled = [_OURS if name == OURS else _LOSSY if name.endswith(LOSSY) else _OTHERS for name in rows]
    ends = [middles - lows, highs - middles]
    axes.barh(range(len(rows)), middles, xerr=ends, color=filled, ecolor="#404040", capsize=2)
    axes.set_yticks(range(len(rows)), list(rows), fontsize=8)
    for i, row in enumerate(rows.values()):
        axes.annotate(f" {row['median']:.0f} ms", (row["p90"], i), va="center", fontsize=8)
    axes.set_xlim(0, 1.12 * highs.max())
    axes.set_xlabel("ms from the last frame to the caption: median, 10th to 90th percentile", fontsize=9)
    bare(axes)
    return figure


def bare(axes: Axes) -> None:
    """Remove the frame above and on the right."""
    axes.spines[["top", "right"]].set_visible(False)


def timeline(spans: Sequence[tuple[str, float, float]], marks: Mapping[str, float]) -> Figure:
    """Draw spans, each a stage with its start and length, and marks; milliseconds count from the close."""
    figure = Figure(figsize=(10, 3), layout="constrained")
    axes = figure.subplots()
    for row, stages in enumerate(ROWS.values()):
        for stage in stages:
            if bars := [(start, length) for name, start, length in spans if name == stage]:
                axes.broken_barh(bars, (row - 0.35, 0.7), color=STAGE_COLOURS[stage], label=stage)
    for name, at in marks.items():
        axes.axvline(at, color="black", linewidth=0.8, linestyle=":")
        axes.text(at, -0.5, f"{name} ", fontsize=7, rotation=90, va="bottom", ha="right")
    axes.set_yticks(range(len(ROWS)), list(ROWS))
    axes.invert_yaxis()
    axes.set_xlabel("ms")
    axes.set_title("one window, from its first frame to its caption", pad=40)
    figure.legend(fontsize=7, ncols=8, frameon=False, loc="outside lower center")
    bare(axes)
    return figure
