"""The drawn timeline of a window's spans."""

from __future__ import annotations

from pathlib import Path

from crossspec_lab.compare.timeline import draw_timeline
from matplotlib.figure import Figure

from crossspec_ros.telemetry.trace import Trace

MS = 1_000_000


def test_the_timeline_shows_each_stage_once_in_its_legend(tmp_path: Path) -> None:
    trace = Trace()
    trace.add("verify[0]", 0, MS)
    trace.add("verify[1]", MS, 2 * MS)
    trace.add("draft_decode", 0, MS)
    trace.mark("first_token")
    figure = Figure()
    axes, empty = figure.subplots(2)
    draw_timeline(axes, trace)
    draw_timeline(empty, Trace())
    figure.savefig(tmp_path / "timeline.png")
    _, labels = axes.get_legend_handles_labels()
    assert sorted(labels) == ["draft_decode", "verify"] and len(axes.patches) == 3
    assert len(empty.patches) == 0
