"""Predictions of the research behind this project, and what it had measured itself: `predictions.csv`.

A row has `what` it is, the `published` value, its `kind`, and the `key` and `unit` of our own figure. "P" was
predicted and never run. "M" was measured by its authors on an RTX 4090 with 4-bit models over DSEC; where two
of their runs disagree both stand.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

PREDICTIONS: defaultdict[int, list[dict[str, str]]] = defaultdict(list)
"""Rows by experiment."""

with Path(__file__).with_suffix(".csv").open(newline="") as _file:
    for _row in csv.DictReader(_file):
        PREDICTIONS[int(_row.pop("experiment"))].append(_row)
