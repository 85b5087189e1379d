"""A window's spans as a timeline: one row for the draft model, one for the target, one for waiting."""

from __future__ import annotations

from matplotlib.figure import Figure

from crossspec_lab.bench.plots import bare
from crossspec_ros.telemetry.trace import ROWS, STAGE_COLOURS, Trace


def timeline(trace: Trace) -> Figure:
    """Draw the trace; milliseconds count from the window's close."""
    figure = Figure(figsize=(10, 3), layout="constrained")
    axes, origin = figure.subplots(), trace.marks["closed"]
    for row, stages in enumerate(ROWS.values()):
        for stage in stages:
            spans = [span for span in trace.spans if span.stage == stage]
            bars = [((one.start_ns - origin) / 1e6, (one.end_ns - one.start_ns) / 1e6) for one in spans]
            if bars:
                axes.broken_barh(bars, (row - 0.35, 0.7), color=STAGE_COLOURS[stage], label=stage)
    for name, stamp in trace.marks.items():
        axes.axvline((stamp - origin) / 1e6, color="black", linewidth=0.8, linestyle=":")
        axes.text((stamp - origin) / 1e6, -0.5, f"{name} ", fontsize=7, rotation=90, va="bottom", ha="right")
    axes.set_yticks(range(len(ROWS)), list(ROWS))
    axes.invert_yaxis()
    axes.set_xlabel("ms")
    axes.set_title("one window, from its first frame to its caption", pad=40)
    figure.legend(fontsize=7, ncols=8, frameon=False, loc="outside lower center")
    bare(axes)
    return figure
