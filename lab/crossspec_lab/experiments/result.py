"""What an experiment found: figures by key, tables, plots, and sentences; the report is made of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isnan

from matplotlib.figure import Figure

from crossspec_lab.experiments.statistics import Interval, number

Cell = Interval | float | int | str | None


@dataclass(frozen=True)
class Table:
    """Rows of cells under their columns; the first column names the row."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def texts(self) -> list[list[str]]:
        """The cells as they are printed."""
        return [[text(cell) for cell in row] for row in self.rows]


@dataclass
class Result:
    """Of one experiment. `figures` stand beside the predictions of the same keys; `unmeasured` says of others
    why there is no figure. `plots` are by the name of their file."""

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


def text(cell: Cell) -> str:
    """A cell as it is printed."""
    if cell is None:
        return "-"
    return number(cell) if isinstance(cell, float) else str(cell)


def figures_as_json(figures: Mapping[str, Cell]) -> dict[str, object]:
    """What json can write; the ends of an interval that there is not are null."""
    return {key: _as_json(cell) if isinstance(cell, Interval) else cell for key, cell in figures.items()}


def _as_json(interval: Interval) -> dict[str, float | None]:
    return {name: None if isnan(value) else value for name, value in asdict(interval).items()}
