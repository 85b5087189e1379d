"""What people call t, x, y and p, in which order they store them, and in which unit the times are."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

ROLES = ("t", "x", "y", "p")
_NAMES = {
    "t": ("t", "ts", "time", "times", "timestamp", "timestamps"),
    "x": ("x", "xs", "col", "column"),
    "y": ("y", "ys", "row"),
    "p": ("p", "ps", "pol", "polarity", "polarities", "on", "sign"),
}
_POWERS = {"s": 6, "ms": 3, "us": 0, "ns": -3}
_UNITS = {"sec": "s", "seconds": "s", "msec": "ms", "usec": "us", "nsec": "ns"} | {u: u for u in _POWERS}
_WITH_UNIT = re.compile(rf"(.+?)[\s_]*[\s_\[(]({'|'.join(_UNITS)})[\])]?")
_LONGEST_NAME = 100
# The year 5138 in either unit.
_SECONDS_END, _MICROSECONDS_END = 1e11, 1e17


def find_roles(names: Sequence[str]) -> tuple[dict[str, int], str | None]:
    """Which of `names` are t, x, y and p, by index, and the unit that the name of t ends in, as in `t_ns`."""
    roles, unit = {}, None
    for index, name in enumerate(names):
        plain, named_unit = name.strip("\"' #%").lower(), None
        # In a name without bound, the search for a unit would take without bound too.
        if len(plain) <= _LONGEST_NAME and (with_unit := _WITH_UNIT.fullmatch(plain)):
            plain, named_unit = with_unit[1], _UNITS[with_unit[2]]
        for role, known in _NAMES.items():
            if plain in known and role not in roles:
                roles[role] = index
                unit = named_unit if role == "t" else unit
    return roles, unit


def guess_roles(table: np.ndarray) -> dict[str, int]:
    """Which columns of a table (N, 4 or more) without names are t, x, y and p.

    The last column that holds polarities in most of its rows is p. Of the others, t is the one that falls
    least often, the first of several, or the last where p is the third, as in Prophesee's CSV. x comes
    before y.
    """
    columns = [table[:, index] for index in range(4)]
    p = next((index for index in (3, 2) if np.isin(columns[index], (-1, 0, 1)).mean() > 0.5), 3)
    others = [index for index in range(4) if index != p]
    t = max(others[::-1] if p == 2 else others, key=lambda index: _ascent(columns[index]))
    x, y = (index for index in others if index != t)
    return {"t": t, "x": x, "y": y, "p": p}


def _ascent(column: np.ndarray) -> float:
    """The share of steps that do not fall, 0 for a constant."""
    steps = np.diff(column[np.isfinite(column)])
    return float((steps >= 0).mean()) if steps.any() else 0.0


def guess_unit(typical: float, is_whole: bool) -> str:
    """The unit of times around `typical`: fractions are seconds, integers us; huge ones of both are ns."""
    if not is_whole and typical < _SECONDS_END:
        return "s"
    return "us" if typical < _MICROSECONDS_END else "ns"


def power_of(unit: str) -> int:
    """The power of ten that makes microseconds of it."""
    return _POWERS[unit]
