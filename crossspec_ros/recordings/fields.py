"""Order in which t, x, y and p stand, and the unit of the times, as the values of the whole file tell.

Names (names.py) go first. Raises ValueError, a sentence that names the
option, where that leaves it open: a wrong guess would caption something else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from crossspec_ros.events.packets import MAX_SIZE, MAX_US
from crossspec_ros.recordings.names import ROLES
from crossspec_ros.recordings.options import UNITS
from crossspec_ros.recordings.sensor_size import (
    common_size,
    count_pixels,
    refuse_pixels_from_one,
    sensor_size,
)

_POWERS = dict(zip(UNITS, (6, 3, 0, -3), strict=True))
# The year 5138 in either unit.
_SECONDS_END, _MICROSECONDS_END = 1e11, 1e17
_SAMPLE = 1000
"""Rows that are kept of each block."""
_FEW = 100
"""Rows at least; the values of fewer say little: the usual orders and units are taken."""
_MOST = 0.9
"""Share of the rows that are sound at least."""
_SOME = 0.01
"""Share of the rows that strays, damage and late events are at most."""
_FRACTIONS = 0.25
"""Share of numbers with fractions in a column of whole ones; times of frames have them now and then."""
_USUAL_S = (0.1, 600.0)
"""Length of recordings."""
_USUAL_HZ = (0.03, 30.0)
"""Events a second of a pixel, on average."""
_NEARLY = 0.3
"""Decades outside of that which still count as usual; another unit that is usual leaves it open."""
_FINER = {"s": "ms", "us": "ns"}
"""Units that are taken for the usual ones where nothing tells: those of simulators."""
_STATED = 1.0
"""Decades outside of what is usual from which a unit in a name or comment is doubted: it may be of others."""
_DECADES = 0.7
"""Decades by which another unit, itself odd, must be nearer to what is usual to leave it open."""
_MOST_FRAMES = 100_000
"""Numbers below which whole ones that many events share may be those of frames."""
_WRAP = 2**32
_SAY_COLUMNS = "name them in the order of the file, as in --columns t,x,y,p (in launch columns:=t,x,y,p)"


class Profile:
    """Values of a table's columns, seen a block at a time."""

    def __init__(self, width: int) -> None:
        self.width, self.count = width, 0
        # How many values of each column are a polarity, a pixel, a fraction, below and one above the one
        # before, another than it, and a number at all.
        self._polar, self._pixels, self._fractions, self._falls, self._ones, self._changes, self._numbers = (
            np.zeros((7, width), np.int64)
        )
        self._counts = np.zeros((width, MAX_SIZE), np.int64)
        self._last: np.ndarray = np.empty((0, width))
        self._samples: list[np.ndarray] = []

    def add(self, rows: np.ndarray) -> int:
        """Look at the next rows (N, width) of numbers, NaN for none; returns how many may be events."""
        rows = rows[np.isfinite(rows).sum(axis=1) >= min(self.width, len(ROLES))]
        if not len(rows):
            return 0
        self.count += len(rows)
        self._polar += ((rows == 0) | (abs(rows) == 1)).sum(axis=0)
        whole = rows == np.rint(rows)
        is_number = np.isfinite(rows)
        self._numbers += is_number.sum(axis=0)
        self._fractions += (is_number & ~whole).sum(axis=0)
        pixels = whole & (rows >= 0) & (rows < MAX_SIZE)
        self._pixels += pixels.sum(axis=0)
        self._counts += [count_pixels(column) for column in rows.T]
        steps = np.diff(rows, axis=0, prepend=self._last)
        self._falls += (steps < 0).sum(axis=0)
        self._ones += (steps == 1).sum(axis=0)
        self._changes += (steps != 0).sum(axis=0)
        self._last = rows[-1:].copy()
        self._samples.append(rows[:: -(-len(rows) // _SAMPLE)].copy())
        return len(rows)

    def sample(self, column: int) -> np.ndarray:
        """Some values of a column, from everywhere."""
        return np.concatenate([rows[:, column] for rows in self._samples])

    def is_whole(self, column: int) -> bool:
        return is_whole(int(self._fractions[column]), self.count)

    def size(
        self, roles: dict[str, int], stated: tuple[int, int] | None, noted: Sequence[tuple[int, int]] = ()
    ) -> tuple[int, int]:
        """(width, height) of the sensor: the `stated` one, also with its height first, or the first of those
        `noted` that holds the events, or a common one."""
        counts = self._counts[[roles["x"], roles["y"]]]
        refuse_pixels_from_one(counts, [stated] if stated else noted)
        if not stated:
            return sensor_size(counts, noted)
        turned = [stated[::-1]] if stated[0] < stated[1] else []
        found = sensor_size(counts, [stated, *turned])
        return found if found in turned else stated

    def check(self, roles: dict[str, int]) -> None:
        """Raise ValueError where many values of a column cannot be what it is said to be."""
        if max(roles.values()) >= self.width:
            raise ValueError(f"--columns has more names than the {self.width} columns: {_SAY_COLUMNS}")
        share = _MOST if self.count >= _FEW else 0.5
        for role, fitting in (("x", self._pixels), ("y", self._pixels), ("p", self._polar)):
            index = roles[role]
            if fitting[index] < share * self.count:
                kind = "polarities (0/1 or -1/1)" if role == "p" else f"pixels (0 to {MAX_SIZE - 1})"
                raise ValueError(
                    f"{self.count - fitting[index]} of {self.count} numbers in the column {index + 1}, "
                    f"{role}, are no {kind}: store such ones, or {_SAY_COLUMNS}"
                )

    def others(self, roles: dict[str, int], names: Sequence[str]) -> list[str]:
        """Columns that are none of `roles` and hold something, by `names` or number."""
        return [
            (names[i] if i < len(names) else "") or f"column {i + 1}"
            for i in range(self.width)
            if i not in roles.values() and self._numbers[i] and self._changes[i] and not self._counts_rows(i)
        ]

    def _is_constant(self, column: int) -> bool:
        return bool((self.sample(column) == self.sample(column)[0]).all())

    def _counts_rows(self, column: int) -> bool:
        return self.count >= _FEW and bool(self._ones[column] >= (1 - _SOME) * (self.count - 1))

    def roles(
        self, size: tuple[int, int] | None = None, named: dict[str, int] | None = None
    ) -> dict[str, int]:
        """The columns of t, x, y and p; `size` is (width, height) of the sensor where it is stated, and some
        may be `named`."""
        named = named or {}
        if len(named) == len(ROLES):
            return named
        is_few = self.count < _FEW and self.width == len(ROLES)
        # Mostly empty ones are none of them.
        rest = [i for i in range(self.width) if i not in named.values() and 2 * self._numbers[i] > self.count]
        if not rest and len(named) < len(ROLES):
            raise ValueError(
                f"no column is left for {' and '.join(sorted({*ROLES} - {*named}))}: {_SAY_COLUMNS}"
            )
        if "p" in named:
            p = named["p"]
        else:
            share = self._polar / max(1, self.count)
            polar = [i for i in rest if share[i] > max(_MOST * share[rest].max(), 0.5)]
            better = [i for i in polar if not self._is_constant(i)]
            p = self._one(polar, better, polar[-1:] if is_few else [], "p")
            rest.remove(p)
        t = named["t"] if "t" in named else self._t(rest, p, is_few)
        lacking = [role for role in "xy" if role not in named]
        pixels = [i for i in rest if i != t]
        for is_none in (self._counts_rows, self._is_constant):
            if len(pixels) > len(lacking):
                pixels = [i for i in pixels if not is_none(i)]
        if lacking and len(pixels) != len(lacking):
            raise ValueError(
                f"{' and '.join(lacking)} may be any of the columns {_listed(pixels) or 'none'}: "
                f"{_SAY_COLUMNS}"
            )
        found = {"t": t, "p": p} | named | dict(zip(lacking, pixels, strict=False))
        if len(lacking) == 2 and self._is_swapped(found["x"], found["y"], size):
            found["x"], found["y"] = found["y"], found["x"]
        return found

    def _t(self, rest: Sequence[int], p: int, is_few: bool) -> int:
        """Column of times among `rest`; p stands in column `p`."""
        fractions = [i for i in rest if not self.is_whole(i)]
        negative = [i for i in rest if np.mean(self.sample(i) < 0) > _SOME]
        for columns, what in (
            (fractions, "fractions, as rectified events do"),
            (negative, "numbers below 0"),
        ):
            if len(columns) > 1:
                raise ValueError(
                    f"the columns {_listed(columns)} have {what}, and pixels are whole, from 0 on: "
                    f"store the sensor's own"
                )
        counting = [i for i in rest if self._counts_rows(i)]
        timely = [i for i in rest if i not in counting]
        large = [i for i in timely if self._pixels[i] < (1 - _SOME) * self.count]
        ascending = [i for i in timely if self._falls[i] <= _SOME * self.count and not self._is_constant(i)]
        found = [i for i in fractions if i in timely] or large or ascending
        if counting and not found:
            raise ValueError(
                f"the column {counting[0] + 1} only counts the rows, and none has times: store the time of "
                f"each event, or where that is one, {_SAY_COLUMNS}"
            )
        # Prophesee's tools write t behind p; of few rows none may fall.
        usual = sorted(rest, key=lambda i: self._falls[i] if i in ascending else math.inf)
        likely = max(rest) if p < max(rest) and max(rest) in ascending else usual[0]
        return self._one(found, [], [likely] if is_few else [], "t")

    def _one(self, found: Sequence[int], better: Sequence[int], usual: Sequence[int], role: str) -> int:
        for columns in (found, usual, better):
            if len(columns) == 1:
                return columns[0]
        which = f"the columns {_listed(found)} could each be {role}" if found else f"no column can be {role}"
        raise ValueError(f"{which}: {_SAY_COLUMNS}")

    def _is_swapped(self, x: int, y: int, size: tuple[int, int] | None) -> bool:
        """Whether y stands before x; raises ValueError where that would be likelier by the sensor's size."""
        # Strays are fewer.
        width, height = (int(np.nanquantile(self.sample(i), 1 - _SOME)) + 1 for i in (x, y))
        # A size that holds the events neither way is of something else.
        ways = [size, size[::-1]] if size else []
        fitting = [one for one in ways if width <= one[0] and height <= one[1]]
        if size and fitting:
            is_swapped = fitting[0] != size
            if is_swapped and size[0] < size[1]:
                raise ValueError(
                    f"its size {size[0]} {size[1]} may be height and width, or the column {y + 1} may be x: "
                    f"{_SAY_COLUMNS}"
                )
            return is_swapped
        if height <= width or self.count < _FEW:
            return False
        if common_size((width, height)) != common_size((height, width)):
            raise ValueError(
                f"the column {x + 1} goes up to {width - 1} and the column {y + 1} up to {height - 1}, so "
                f"that either may be x: {_SAY_COLUMNS}"
            )
        return False


def _listed(columns: Sequence[int]) -> str:
    return ", ".join(str(index + 1) for index in columns)


def is_whole(fractions: int, count: int) -> bool:
    """Whether `count` numbers are meant to be whole, of which so many are not."""
    return fractions <= count * _FRACTIONS


def choose_unit(
    times: np.ndarray,
    are_whole: bool,
    count: int = 0,
    size: tuple[int, int] = (1, 1),
    said: str | None = None,
    named: str | None = None,
) -> str:
    """The unit of times of which `times` (N,) are some, of all of `count` events of a sensor of `size`.

    It is what the user `said`; else that `named` in a header or comment, or the usual one: fractions are
    seconds, integers us; huge ones of both are ns. Raises ValueError where length and rate are far from those
    of recordings, and those in another unit are not.
    """
    if said and said not in _POWERS:
        raise ValueError(f"'{said}' is no unit: give s, ms, us or ns with --time-unit")
    if named and named not in _POWERS and not said:
        raise ValueError(f"its unit is stated as '{named}': say s, ms, us or ns with --time-unit")
    finite = times[np.isfinite(times)]
    if said or not len(finite):
        return said or named or "us"
    typical = float(np.median(finite))
    usual = "us" if typical < _MICROSECONDS_END else "ns"
    if not are_whole and typical < _SECONDS_END:
        usual = "s"
    usual = named or usual
    low, high = (float(time) for time in np.quantile(finite, (_SOME, 1 - _SOME)))
    if count < _FEW or low == high:
        return usual
    readings = {}
    for unit, power in _POWERS.items():
        seconds = (high - low) * 10.0 ** (power - 6)
        rate = count / seconds
        pixel_hz = rate / (size[0] * size[1])
        if high * 10.0**power < MAX_US:
            oddness = _decades(seconds, *_USUAL_S) + _decades(pixel_hz, *_USUAL_HZ)
            readings[unit] = oddness, f"as {unit} they are {seconds:.6g} s with {rate:.3g} events a second"
    odd = {unit: oddness for unit, (oddness, _) in readings.items()}
    if usual not in odd:
        return usual
    is_usual = odd[usual] <= (_STATED if named else _NEARLY)
    if is_usual and named:
        return usual
    # A usual reading is doubted for the next finer unit alone, an odd one for any.
    others = [unit for unit in odd if (unit == _FINER.get(usual) if is_usual else unit != usual)]
    best = min(others, key=odd.__getitem__, default=usual)
    if best == usual or (odd[best] > _NEARLY and (is_usual or odd[usual] < odd[best] + _DECADES)):
        return usual
    hint = ""
    if are_whole and high - low < min(_MOST_FRAMES, count / _FEW):
        hint = "; numbers of frames are no times: store the time of each event"
    elif high < _WRAP <= high + _SOME * (high - low) * 2:
        hint = "; where they begin anew behind 2**32, add 2**32 to those from there on"
    raise ValueError(
        f"times from {low:.10g} to {high:.10g} may be {best} or {usual} ({readings[best][1]}, "
        f"{readings[usual][1]}): say which with --time-unit {best} or --time-unit {usual} (in launch "
        f"time_unit:={best}){hint}"
    )


def _decades(value: float, low: float, high: float) -> float:
    """Distance from low to high, in powers of ten."""
    return max(0.0, math.log10(low / value), math.log10(value / high))


def to_us(times: np.ndarray, unit: str, offset_us: int = 0) -> np.ndarray:
    """Times (N,) as int64 us; -1 for those that are not from 1970 to 2038, as ROS time is."""
    power = _POWERS[unit]
    limit = MAX_US * 10.0**-power
    # NaN is neither.
    good = (times >= -limit) & (times < limit)
    times = times if good.all() else np.where(good, times, 0)
    if times.dtype.kind == "f":
        us = np.rint(times.astype(np.float64) * 10.0**power).astype(np.int64)
    else:
        us = times.astype(np.int64)
        us = us * 10**power if power >= 0 else us // 10**-power
    us += offset_us
    us[~(good & (us >= 0) & (us < MAX_US))] = -1
    return us


def power_of(unit: str) -> int:
    """The power of ten that makes microseconds of it."""
    return _POWERS[unit]
