"""Tables of figures: Markdown for people, JSON for the file of a bench."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isnan
from typing import Any

from crossspec_lab.bench.statistics import Interval, number

Cell = Interval | Mapping[str, float] | float | int | str | None


@dataclass(frozen=True)
class Table:
    """Named rows of cells, under the names of all their columns; the first column is the `corner`."""

    title: str
    rows: Mapping[str, Mapping[str, Cell]]
    corner: str = ""

    def __str__(self) -> str:
        """Return Markdown, which a terminal shows as well."""
        columns = list(dict.fromkeys(name for row in self.rows.values() for name in row))
        lines = [[name, *(text(row.get(column)) for column in columns)] for name, row in self.rows.items()]
        heads = [self.corner, *(str(column) for column in columns)]
        texts = [[cell.replace("|", "/") for cell in line] for line in (heads, *lines)]
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        texts.insert(1, ["-" * max(3, width) for width in widths])
        rows = ("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in texts)
        return "\n".join([*([f"**{self.title}**", ""] if self.title else []), *rows, ""])

    def json(self) -> dict[str, Any]:
        """Return the table as JSON, from which `Table(**table.json())` makes it again."""
        rows = {
            name: {column: as_json(cell) for column, cell in row.items()} for name, row in self.rows.items()
        }
        return {"title": self.title, "rows": rows, "corner": self.corner}


def as_json(cell: Cell) -> Any:
    """Return a cell as JSON; without an interval the figure alone."""
    if not isinstance(cell, Interval):
        return cell
    return cell.value if isnan(cell.low) else asdict(cell)


def text(cell: Cell) -> str:
    """Return a cell as it is printed: a spread with its percentiles, a ratio also with its 95 % interval."""
    if cell is None:
        return "-"
    if isinstance(cell, Mapping):
        if "value" in cell:
            return str(Interval(**cell))
        ends = " to ".join(number(end) for name, end in cell.items() if name not in ("median", "low", "high"))
        interval = f", 95 %: {number(cell['low'])} to {number(cell['high'])}" if "low" in cell else ""
        return f"{number(cell['median'])} ({ends}){interval}"
    return number(cell) if isinstance(cell, float) else str(cell)
