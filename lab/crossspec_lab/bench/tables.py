"""Tables of figures as Markdown, which a terminal shows as well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crossspec_lab.bench.statistics import Interval, number

Cell = Interval | Mapping[str, float] | float | int | str | None


@dataclass(frozen=True)
class Table:
    """Named rows of cells, under the names of all their columns; the first column is the `corner`."""

    title: str
    rows: Mapping[str, Mapping[str, Cell]]
    corner: str = ""

    def texts(self) -> list[list[str]]:
        """Return the lines of the table, the names of the columns first."""
        columns = list(dict.fromkeys(name for row in self.rows.values() for name in row))
        lines = [[name, *(text(row.get(column)) for column in columns)] for name, row in self.rows.items()]
        heads = [self.corner, *(str(column) for column in columns)]
        return [[cell.replace("|", "/") for cell in line] for line in (heads, *lines)]

    def __str__(self) -> str:
        """Return Markdown."""
        texts = self.texts()
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        texts.insert(1, ["-" * max(3, width) for width in widths])
        lines = ("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in texts)
        return "\n".join([*([f"**{self.title}**", ""] if self.title else []), *lines, ""])


def table(title: str, rows: Mapping[str, Mapping[str, Cell]]) -> str:
    """Return rows of figures as Markdown."""
    return str(Table(title, rows))


def text(cell: Cell) -> str:
    """Return a cell as it is printed: a spread with its percentiles, a ratio also with its 95 % interval."""
    if cell is None:
        return "-"
    if isinstance(cell, Mapping):
        ends = " to ".join(number(end) for name, end in cell.items() if name not in ("median", "low", "high"))
        interval = f", 95 %: {number(cell['low'])} to {number(cell['high'])}" if "low" in cell else ""
        return f"{number(cell['median'])} ({ends}){interval}"
    return number(cell) if isinstance(cell, float) else str(cell)
