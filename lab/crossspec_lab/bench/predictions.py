"""Predictions of the research behind this project, and what it had measured itself: `predictions.csv`.

A row has `what` it is, the `published` value, its `kind`, and the `key` and `unit` of our own figure. "P" was
predicted and never run. "M" was measured by its authors on an RTX 4090 with 4-bit models over DSEC; where two
of their runs disagree both stand.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from crossspec_lab.bench.tables import Cell, Table, text

PREDICTIONS: defaultdict[str, list[dict[str, str]]] = defaultdict(list)
"""Rows by bench."""
_KINDS = {"M": "measured by its authors", "P": "predicted"}

with Path(__file__).with_suffix(".csv").open(newline="") as _file:
    for _row in csv.DictReader(_file):
        PREDICTIONS[_row.pop("bench")].append(_row)


def predicted(bench: str, figures: Mapping[str, Cell], unmeasured: Mapping[str, str]) -> Table | None:
    """Return each published figure beside ours, or the reason why there is none; None without predictions.

    Raises KeyError where there is neither.
    """
    if bench not in PREDICTIONS:
        return None
    rows: dict[str, dict[str, Cell]] = {}
    for one in PREDICTIONS[bench]:
        key = one["key"]
        here = f"{text(figures[key])} {one['unit']}" if key in figures else f"not measured: {unmeasured[key]}"
        rows[one["what"]] = {
            "published": one["published"],
            "how": _KINDS[one["kind"]],
            "here": here.strip(),
        }
    return Table("published and measured", rows)
