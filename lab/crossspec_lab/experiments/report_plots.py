"""Plots that several experiments have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from crossspec_lab.compare.harness import spread
from crossspec_lab.compare.plots import LOSSY_COLOUR, OTHERS_COLOUR, OURS_COLOUR, WAIT_LABEL, bars
from crossspec_lab.experiments.records import Record
from crossspec_lab.experiments.ways import LOSSY, OURS


def wall_bars(axes: Axes, records: Mapping[str, Sequence[Record]]) -> None:
    """Waits for a caption by way, the slowest below; ours and lossy ways have colours of their own."""
    rows = {way: spread([1e3 * record.wall_s for record in mine]) for way, mine in records.items()}
    slowest = sorted(rows, key=lambda way: -rows[way]["median"])

    def colour(way: str) -> str:
        return OURS_COLOUR if way == OURS else LOSSY_COLOUR if way in LOSSY else OTHERS_COLOUR

    bars(axes, {way: rows[way] for way in slowest}, WAIT_LABEL, colour)
    axes.set_yticks(range(len(slowest)), [marked(way) for way in slowest], fontsize=8)


def marked(way: str) -> str:
    """A way's name, and whether it is lossy."""
    return way + (" (lossy)" if way in LOSSY else "")
