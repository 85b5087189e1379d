"""Predictions of the research behind this project, and what it had measured itself: `predictions.csv`.

"P" was predicted and never run; "M" was measured by its authors on an RTX 4090 with 4-bit models over DSEC.
Figures only; where two runs of theirs disagree both stand.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Prediction(NamedTuple):
    """One published figure: what it is, its value as it was written, whether it was measured ("M") or
    predicted ("P"), and the `key` of our own figure that stands beside it, in this `unit`."""

    what: str
    published: str
    kind: str
    key: str
    unit: str


def _read() -> dict[int, list[Prediction]]:
    found: dict[int, list[Prediction]] = {}
    with Path(__file__).with_suffix(".csv").open(newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(int(row.pop("experiment")), []).append(Prediction(**row))
    return found


PREDICTIONS: Mapping[int, list[Prediction]] = _read()
"""By experiment."""
