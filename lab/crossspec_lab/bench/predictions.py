"""Predictions of the research behind this project, and what it had measured itself: `predictions.csv`.

A row has a description (`what`), the `published` value, its `kind`, and the `key` and `unit` of our own
figure. "P" was predicted and never run. "M" was measured by its authors on an RTX 4090 with 4-bit models over
DSEC. If two of their runs disagree, the row has both.
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
    """Return each published figure with ours or the reason why it is missing; None without predictions.

    Raises KeyError for a published figure without both.
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
