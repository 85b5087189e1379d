"""Results of an experiment: figures by key, tables, plots, and sentences; the report is made of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isnan

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from crossspec_lab.bench import statistics
from crossspec_lab.bench.decoders import DECODERS, OURS
from crossspec_lab.bench.plots import LOSSY_COLOUR, OURS_COLOUR, wait_bars
from crossspec_lab.bench.records import Record, paired
from crossspec_lab.bench.statistics import Interval, spread
from crossspec_lab.bench.tables import Cell, Table, text

_LOSSY = " (lossy)"
SOONER = "sooner than alone, times"
WALL = "last frame to caption, ms"
CLOSE = "close to caption, ms"
FIRST = "last frame to first token, ms"
TOKENS = "tokens a pass"
P = "p of the difference"


def cells(
    names: Sequence[str], mine: Sequence[Record], others: Sequence[Record], seed: int
) -> dict[str, Cell]:
    """Return the named columns of a decoder, compared with another one on the same windows.

    Times are spreads, and ratios have bootstrap intervals.
    """
    mine, others = paired(mine, others)
    walls, than = ([record.wall_s for record in records] for records in (mine, others))
    told = [record for record in mine if record.passes]
    found = {
        SOONER: lambda: statistics.speed(than, walls, seed),
        WALL: lambda: spread([1e3 * wall for wall in walls]),
        CLOSE: lambda: spread([1e3 * record.from_close_s for record in mine]),
        FIRST: lambda: spread([1e3 * record.first_token_s for record in mine]),
        TOKENS: lambda: _tokens(told, seed) if told else None,
        P: lambda: statistics.paired_p(walls, than),
    }
    return {name: found[name]() for name in names}


def _tokens(records: Sequence[Record], seed: int) -> Interval:
    return statistics.ratio([len(r.tokens) for r in records], [r.passes for r in records], seed)


@dataclass
class Result:
    """Results of one experiment. `figures` stand beside the predictions of the same keys; `unmeasured` says
    of others why there is no figure. `plots` are by the name of their file."""

    figures: dict[str, Cell] = field(default_factory=dict)
    unmeasured: dict[str, str] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    plots: dict[str, Figure] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def beside(self, key: str, unit: str = "") -> str:
        """Our figure, or why there is none."""
        if key in self.figures:
            return " ".join([text(self.figures[key]), *([unit] if unit else [])])
        return "not measured: " + self.unmeasured[key]


def figures_as_json(figures: Mapping[str, Cell]) -> dict[str, object]:
    """Value that json can write; the ends of an interval that there is not are null."""
    return {key: _as_json(cell) if isinstance(cell, Interval) else cell for key, cell in figures.items()}


def _as_json(interval: Interval) -> dict[str, float | None]:
    return {name: None if isnan(value) else value for name, value in asdict(interval).items()}


def wall_bars(axes: Axes, records: Mapping[str, Sequence[Record]]) -> None:
    """Draw the waits for a caption by decoder; ours and lossy ones have their own colours."""
    rows = {marked(way): spread([1e3 * record.wall_s for record in mine]) for way, mine in records.items()}
    wait_bars(
        axes, rows, {OURS: OURS_COLOUR} | {name: LOSSY_COLOUR for name in rows if name.endswith(_LOSSY)}
    )


def marked(way: str) -> str:
    """A way's name, and whether it is lossy."""
    entry = DECODERS.get(way)
    return way if entry is None or entry.is_lossless else f"{way}{_LOSSY}"
