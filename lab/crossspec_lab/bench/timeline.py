"""A window's spans as a timeline: one row for the draft model, one for the target, one for waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from crossspec_lab.bench.plots import bare
from crossspec_ros.telemetry.trace import ROWS, STAGE_COLOURS


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
