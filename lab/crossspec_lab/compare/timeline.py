"""A window's spans drawn as a timeline: one row for the draft model, one for the target, one for waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossspec_ros.telemetry.trace import ROWS, STAGE_COLOURS, Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_timeline(axes: Axes, trace: Trace) -> None:
    """Draw the trace; milliseconds count from the window's close, or without that from the earliest span."""
    spans = [span for span in trace.spans if span.stage in STAGE_COLOURS]
    origin = trace.marks.get("closed", min((span.start_ns for span in spans), default=0))
    seen: set[str] = set()
    rows = {name: stages for name, stages in ROWS.items() if any(span.stage in stages for span in spans)}
    for row, stages in enumerate(rows.values()):
        for span in spans:
            if span.stage in stages:
                axes.barh(
                    row,
                    (span.end_ns - span.start_ns) / 1e6,
                    left=(span.start_ns - origin) / 1e6,
                    height=0.7,
                    color=STAGE_COLOURS[span.stage],
                    edgecolor="white",
                    linewidth=0.5,
                    label="_" if span.stage in seen else span.stage,
                )
                seen.add(span.stage)
    top = -0.4
    for name, stamp in sorted(trace.marks.items(), key=lambda mark: mark[1]):
        axes.axvline((stamp - origin) / 1e6, color="black", linewidth=0.8, linestyle=":")
        # Marks are often so near each other that names on one line would overlap.
        top -= 0.25
        side = "left" if name == "last_frame" else "right"
        axes.annotate(f" {name} ", ((stamp - origin) / 1e6, top), fontsize=7, ha=side)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_ylim(len(rows) - 0.5, top - 0.25)
    axes.set_xlabel("ms")
    if seen:
        axes.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.2), fontsize=7, ncols=len(seen), frameon=False
        )
