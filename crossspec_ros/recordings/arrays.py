"""Events in arrays t, x, y and p, as `.npz` and `.npy` files hold them: what is accepted, how it plays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.packets import MAX_SIZE, MAX_US
from crossspec_ros.recordings.fields import ROLES, find_roles, guess_roles, guess_unit, power_of
from crossspec_ros.recordings.unpacking import check_held

SIZE = ("width", "height")
_EVENT_BYTES = 32
"""Of an event while its columns are read, however short they are stored."""
# (width, height) of common sensors, the smaller ones first.
_SENSORS = ((128, 128), (240, 180), (346, 260), (320, 320), (640, 480), (1280, 720))
_BLOCK = 1_000_000
# Floats up to here have all integers between them.
_WHOLE = 1 << 53


class ArrayEvents:
    """Events held in memory as an EventSource."""

    def __init__(self, path: Path, arrays: Mapping[str, object], container: str) -> None:
        """`arrays` as `read_arrays` wants them. Raises InputError, which names `path`."""
        self.events, unit = read_arrays(arrays, path)
        self.format = f"{container}, times in {unit}"
        self.start_us, self.end_us = int(self.events.t[0]), int(self.events.t[-1])

    def batches(self) -> Iterator[EventBatch]:
        for start in range(0, len(self.events), _BLOCK):
            yield self.events[start : start + _BLOCK]

    def close(self) -> None:
        """Nothing is open."""


def check_events(path: Path, count: int) -> None:
    """Raise InputError for more events than a file of its size has."""
    check_held(path, count * _EVENT_BYTES)


def split_table(table: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of a structured array by their names, of an array (N, 4 or more) of numbers by guess_roles.

    Raises ValueError for another one.
    """
    if table.dtype.names:
        return {name: table[name].reshape(-1) for name in table.dtype.names}
    if table.ndim != 2 or table.shape[1] < len(ROLES) or table.dtype.kind not in "iuf":
        raise ValueError(f"it is an array of shape {table.shape} and type {table.dtype}")
    columns = {role: table[:, index] for role, index in guess_roles(table[:_BLOCK]).items()}
    for role in ("x", "y", "p") if table.dtype.kind == "f" else ():
        whole = np.rint(columns[role])
        if np.array_equal(whole, columns[role]) and abs(whole).max(initial=0) < _WHOLE:
            columns[role] = whole.astype(np.int64)
    return columns


def read_arrays(arrays: Mapping[str, object], source: Path) -> tuple[EventBatch, str]:
    """The events in arrays (N,) of t, x, y and p, and the unit that their times were in.

    fields.py says which names and units they may have; t is in order, x and y are integers, p is in {0, 1},
    {-1, 1} or bool. `arrays` may hold the sensor's `width` and `height` too; otherwise it is the smallest
    common sensor that holds all events. Raises InputError, which names `source`, for anything else.
    """

    def require(fits: object, problem: str, remedy: str) -> None:
        if not fits:
            raise InputError(f"'{source}' {problem}: {remedy}")

    names = list(arrays)
    roles, unit = find_roles(names)
    columns = []
    for role, kinds in (("t", "iuf"), ("x", "iu"), ("y", "iu"), ("p", "iub")):
        require(
            role in roles,
            f"has no array {role} among {', '.join(names)[:200] or 'none'}",
            "store t (us), x, y and p, one of each for every event",
        )
        values = arrays[names[roles[role]]]
        is_list = isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in kinds
        shape, dtype = getattr(values, "shape", ()), getattr(values, "dtype", type(values).__name__)
        require(is_list, f"has {role} of shape {shape} and type {dtype}", "store a list of integers")
        columns.append(np.asarray(values))
    stored, x, y, p = columns
    lengths = [len(values) for values in columns]
    require(len(set(lengths)) == 1, "has {} t, {} x, {} y and {} p".format(*lengths), "store as many of each")
    require(len(stored), "has no events", "choose another recording")
    check_events(source, len(stored))
    t, unit = _microseconds(stored, unit)
    require(
        t is not None and t.min() >= 0 and t.max() < MAX_US,
        f"has times from {stored.min()} to {stored.max()} (read as {unit})",
        "store microseconds, from 0 to those of the year 2038",
    )
    assert t is not None
    late = np.flatnonzero(np.diff(t) < 0)[:1]
    require(not len(late), f"has times that go back, first behind event {late.sum()}", "sort its events by t")
    require(
        min(x.min(), y.min()) >= 0 and max(x.max(), y.max()) < MAX_SIZE,
        f"has x from {x.min()} to {x.max()} and y from {y.min()} to {y.max()}",
        f"store pixels from 0 to {MAX_SIZE - 1}",
    )
    require(
        np.all((p == 0) | (p == 1)) or np.all((p == -1) | (p == 1)),
        f"has polarities from {p.min()} to {p.max()}",
        "store 0 and 1, or -1 and 1",
    )
    needed = (int(x.max()) + 1, int(y.max()) + 1)
    size = common_size(needed)
    if "width" in arrays or "height" in arrays:
        stated = [arrays.get(name) for name in SIZE]
        size = (_whole(stated[0]), _whole(stated[1]))
        require(
            all(least <= value <= MAX_SIZE for least, value in zip(needed, size, strict=True)),
            "has width = {} and height = {} with events up to x = {}, y = {}".format(
                *map(_shown, stated), needed[0] - 1, needed[1] - 1
            ),
            f"store two integers that hold all events, up to {MAX_SIZE}, or neither",
        )
    batch = EventBatch(t, x.astype(np.uint16), y.astype(np.uint16), (p > 0).astype(np.uint8), *size)
    return batch, unit


def common_size(needed: tuple[int, int]) -> tuple[int, int]:
    """Width and height of the smallest common sensor that is at least as large, or else these very ones."""
    fitting = (size for size in _SENSORS if size[0] >= needed[0] and size[1] >= needed[1])
    return next(fitting, needed)


def is_size(width: float, height: float) -> bool:
    """Whether a sensor that is read can have so many pixels, as a file states them."""
    return all(value in range(1, MAX_SIZE + 1) for value in (width, height))


def _whole(value: object) -> int:
    """A size as it is stated, -1 for none: an array made of lists in lists would have no bound."""
    if isinstance(value, np.ndarray | np.generic):
        return int(value) if value.shape == () and value.dtype.kind in "iu" else -1
    return value if isinstance(value, int) else -1


def _shown(value: object) -> str:
    """A size that is wrong, in a few words."""
    is_short = value is None or (isinstance(value, np.ndarray | np.generic) and value.size <= 9)
    is_short |= isinstance(value, int) and abs(value) < 1 << 64
    return str(value)[:80] if is_short else type(value).__name__


def _microseconds(stored: np.ndarray, unit: str | None) -> tuple[np.ndarray | None, str]:
    """Times as int64 us, None where they are out of all bounds, and the unit they were in."""
    largest = float(stored.max())
    if not np.isfinite(stored).all():
        return None, unit or "s"
    unit = unit or guess_unit(
        float(np.median(stored)), stored.dtype.kind != "f" or bool((stored == np.rint(stored)).all())
    )
    power = power_of(unit)
    if max(largest, -float(stored.min())) * 10.0**power >= 2.0**62:
        return None, unit
    if stored.dtype.kind == "f":
        return np.rint(stored.astype(np.float64) * 10.0**power).astype(np.int64), unit
    whole = stored.astype(np.int64) if largest < 2.0**63 else stored
    return (whole * 10**power if power >= 0 else whole // 10**-power).astype(np.int64), unit
