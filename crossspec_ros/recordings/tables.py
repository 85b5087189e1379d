"""Tables of events: column names, unit of time, sensor size and valid events."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.packets import MAX_US
from crossspec_ros.recordings.options import ReadOptions
from crossspec_ros.recordings.source import WINDOW_US, SourceRecording, damaged
from crossspec_ros.settings import UNITS

BLOCK = 1 << 18
"""Events that are read at once."""
ROLES = ("t", "x", "y", "p")
_NAMES = {
    "t": ("t", "ts", "time", "times", "timestamp", "timestamps"),
    "x": ("x", "xs", "col"),
    "y": ("y", "ys", "row"),
    "p": ("p", "ps", "pol", "polarity"),
}
_NAME = re.compile(r"(?P<name>[a-z]+)(_(?P<unit>[a-z]+))?(\((?P<note>\S*)\))?(\s.*)?")
_POWERS = dict(zip(UNITS, (6, 3, 0, -3), strict=True))
_MAX_INVALID = 0.1
"""Reject a table when a larger fraction of a block is invalid."""
_MAX_OUTSIDE_ASSUMED = 0.001
"""The same fraction for a sensor size that the first block suggests: a corner is no sensor."""
_MAX_BACK = 0.01
"""Reject a table when a larger fraction of times is more than a second before the previous one."""


_SENSORS = ((128, 128), (240, 180), (346, 260), (320, 320), (640, 480), (768, 640), (1280, 720))
"""(width, height) of common sensors, the smaller ones first."""
_MAX_ASSUMED = 2048
"""Limit of width and height that coordinates suggest."""


class Columns(NamedTuple):
    """Indices of t, x, y and p, and the unit in the name of t."""

    t: int
    x: int
    y: int
    p: int
    unit: str = ""


class Block(NamedTuple):
    """Consecutive events (N,): t in int64 us, -1 where it is no ROS time; x, y and p of any numeric type."""

    t: np.ndarray
    x: np.ndarray
    y: np.ndarray
    p: np.ndarray


def ask(path: Path, problem: str) -> InputError:
    """Return an error that asks for the two options."""
    return InputError(
        f"'{path}' {problem}: give --columns, such as t,x,y,p in the order of the file, and --time-unit s, "
        f"ms, us or ns (in launch columns:= and time_unit:=)"
    )


def split_header(line: str) -> list[str]:
    """Split a header into names; brackets lose their blanks, and `(float s)` becomes `(s)`."""
    line = re.sub(r"^[\s#%]*(format is\b)?", "", line.lower().replace('"', "").replace("\u00b5s", "us"))
    notes = re.compile(r"\s*[\[(](?:float |in )?([^\])]*)[\])]")
    line = notes.sub(lambda note: "(" + re.sub(r"[,;\s]", "", note[1]) + ")", line)
    return re.split(r"[,;\t]" if re.search(r"[,;\t]", line) else r"\s+", line.strip())


def find_columns(names: Sequence[str]) -> Columns | None:
    """Find t, x, y and p by name; `t_us` and `time (us)` also state the unit. None unless all are there."""
    found: dict[str, int] = {}
    unit = ""
    for index, name in enumerate(names):
        match = _NAME.fullmatch(name.strip().lower())
        role = next((role for role in ROLES if match and match["name"] in _NAMES[role]), None)
        # The suffix of a name such as t_offset makes it something else.
        if match and role and role not in found and match["unit"] in (None, *(UNITS if role == "t" else ())):
            found[role] = index
            if role == "t":
                unit = match["unit"] or (match["note"] if match["note"] in UNITS else "")
    return Columns(**found, unit=unit) if len(found) == len(ROLES) else None


def choose_columns(
    path: Path, options: ReadOptions, found: Columns | None, width: int | None, unit: str = ""
) -> Columns:
    """Return the user's columns of a table of `width`, else the columns that the file names, with a unit.

    Raises InputError for unknown columns or unit, and for the user's columns of a file that is no table
    (`width` None) or lacks them.
    """
    if options.columns:
        if width is None:
            raise InputError(f"'{path}' names its columns: leave out --columns")
        found = find_columns(options.columns.split(","))
        if not found or max(found[:4]) >= width:
            stated = f"--columns '{options.columns}' does not name t, x, y and p"
            raise ask(path, f"has {width} columns, and {stated}")
    if not found:
        raise ask(path, "does not name its columns")
    unit = options.time_unit or found.unit or unit
    if unit not in UNITS:
        raise ask(path, f"has times in '{unit}'" if unit else "does not state the unit of its times")
    return found._replace(unit=unit)


def to_us(times: np.ndarray, unit: str, offset: int = 0) -> np.ndarray:
    """Convert times (N,) plus an offset to int64 us; -1 where the result is not from 1970 to 2038."""
    power = _POWERS[unit]

    def scale(value: Any) -> Any:
        return value * 10**power if power >= 0 else value // 10**-power

    limit = MAX_US * 10.0**-power
    # NaN is neither.
    is_time = (times >= -limit) & (times < limit)
    times = times if is_time.all() else np.where(is_time, times, 0)
    if times.dtype.kind == "f":
        us = np.rint(times.astype(np.float64) * 10.0**power).astype(np.int64)
    else:
        us = scale(times.astype(np.int64))
    us += scale(offset)
    us[~(is_time & (us >= 0) & (us < MAX_US))] = -1
    return us


def assume_size(x: np.ndarray, y: np.ndarray) -> tuple[int, int]:
    """Return (width, height) of the smallest common sensor that holds all but 0.1 % of the events.

    Where no common sensor is large enough, the size is that of the largest coordinates.
    """
    x, y = (axis[(axis >= 0) & (axis < _MAX_ASSUMED)] for axis in (x, y))
    for width, height in _SENSORS:
        if np.count_nonzero(x >= width) + np.count_nonzero(y >= height) <= _MAX_OUTSIDE_ASSUMED * len(x):
            return width, height
    return int(x.max(initial=0)) + 1, int(y.max(initial=0)) + 1


class TableEvents(SourceRecording):
    """Blocks of a table as a recording.

    Without a stated `size` (width, height) the sensor is the smallest common one that holds the first block.
    `blocks` starts a pass; it may raise InputError at the end for unreadable parts. Raises InputError when
    there are no events, or when the values of the first block do not look like events in order of time.
    """

    def __init__(
        self,
        path: Path,
        description: str,
        blocks: Callable[[], Iterator[Block]],
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(path)
        self._blocks = blocks
        begun = blocks()
        first = next((block for block in begun if len(block.t)), None)
        if first is None:
            raise InputError(f"'{path}' has no events: choose another recording")
        self._is_assumed = size is None
        self.size = size or assume_size(first.x, first.y)
        self.format = f"{description}, {self.size[0]}x{self.size[1]}{'' if size else ' assumed'}"
        t = self._valid(first, Counter()).t
        if not len(t):
            raise self._invalid(first)
        if np.count_nonzero(np.diff(t) < -WINDOW_US) > _MAX_BACK * len(t):
            raise InputError(f"'{path}' has times that go back by more than a second: sort its events by t")
        # The first pass goes on with these blocks, so that nothing is read twice.
        self._begun_blocks: Iterator[Block] | None = chain([first], begun)

    def batches(self) -> Iterator[EventBatch]:
        """Yield the valid events of each block; raises InputError at the end for invalid ones."""
        damage: Counter[str] = Counter()
        blocks, self._begun_blocks = self._begun_blocks or self._blocks(), None
        for block in blocks:
            yield self._valid(block, damage)
        if +damage:
            raise damaged(self._path, damage)

    def _valid(self, block: Block, damage: Counter[str]) -> EventBatch:
        t, x, y, p = block
        is_time, is_polarity = t >= 0, (p == 0) | (p == 1) | (p == -1)
        is_pixel = _are_pixels(x, self.size[0]) & _are_pixels(y, self.size[1])
        valid = is_time & is_polarity & is_pixel
        if not valid.all():
            most = _MAX_OUTSIDE_ASSUMED if self._is_assumed else _MAX_INVALID
            if np.count_nonzero(~valid) > max(1, most * len(t)):
                raise self._invalid(block)
            damage["times_before_1970_or_after_2038"] += int(np.count_nonzero(~is_time))
            damage["invalid_polarities"] += int(np.count_nonzero(is_time & ~is_polarity))
            damage["events_outside_sensor"] += int(np.count_nonzero(is_time & is_polarity & ~is_pixel))
            t, x, y, p = t[valid], x[valid], y[valid], p[valid]
        pixels = x.astype(np.uint16), y.astype(np.uint16)
        return EventBatch(t, *pixels, (p > 0).astype(np.uint8), *self.size)

    def _invalid(self, block: Block) -> InputError:
        named = zip(ROLES, block, strict=True)
        ranges = ", ".join(f"{role} {values.min()} to {values.max()}" for role, values in named)
        origin = ", the smallest that holds the first events" if self._is_assumed else ""
        return InputError(
            f"'{self._path}' has values that do not look like events of a sensor of "
            f"{self.size[0]}x{self.size[1]}{origin} ({ranges}, t in us): store times before 2038, pixels "
            f"from 0, polarities 0 and 1 or -1 and 1, and the sensor's width and height"
        )


def _are_pixels(axis: np.ndarray, size: int) -> np.ndarray:
    inside = (axis >= 0) & (axis < size)
    return inside & (axis == np.rint(axis)) if axis.dtype.kind == "f" else inside
