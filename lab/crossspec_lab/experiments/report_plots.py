"""Plots of several experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from crossspec_lab.compare.harness import spread
from crossspec_lab.compare.plots import LOSSY_COLOUR, OURS_COLOUR, wait_bars
from crossspec_lab.experiments.records import Record
from crossspec_lab.experiments.ways import LOSSY, OURS


def wall_bars(axes: Axes, records: Mapping[str, Sequence[Record]]) -> None:
    """Draw the waits for a caption by decoder; ours and lossy ones have their own colours."""
    rows = {marked(way): spread([1e3 * record.wall_s for record in mine]) for way, mine in records.items()}
    wait_bars(axes, rows, {OURS: OURS_COLOUR} | {marked(way): LOSSY_COLOUR for way in LOSSY})


def marked(way: str) -> str:
    """A way's name, and whether it is lossy."""
    return way + (" (lossy)" if way in LOSSY else "")
