"""Events in arrays t, x, y and p, as `.npz` and `.npy` files hold them: what is accepted, how it plays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.packets import MAX_SIZE

NAMES = ("t", "x", "y", "p", "width", "height")
# (width, height) of common sensors, the smaller ones first.
_SENSORS = ((128, 128), (240, 180), (346, 260), (320, 320), (640, 480), (1280, 720))
# ROS time has 31 bits of seconds.
_MAX_US = (1 << 31) * 1_000_000
_BLOCK = 1_000_000


class ArrayEvents:
    """Events held in memory as an EventSource."""

    def __init__(self, events: EventBatch, format: str) -> None:
        self.events, self.format = events, format
        self.start_us, self.end_us = int(events.t[0]), int(events.t[-1])

    def batches(self) -> Iterator[EventBatch]:
        for start in range(0, len(self.events), _BLOCK):
            yield self.events[start : start + _BLOCK]

    def close(self) -> None:
        """Nothing is open."""


def batch_of(arrays: Mapping[str, object], source: Path) -> EventBatch:
    """The events in arrays (N,) `t` in us, in order, `x`, `y`, and `p` in {0, 1}, {-1, 1} or bool.

    `arrays` may hold the sensor's `width` and `height` too; otherwise it is the smallest common sensor that
    holds all events. Raises InputError, which names `source`, for anything else.
    """

    def require(fits: object, problem: str, remedy: str) -> None:
        if not fits:
            raise InputError(f"'{source}' {problem}: {remedy}")

    columns = []
    for name, kinds in (("t", "iu"), ("x", "iu"), ("y", "iu"), ("p", "iub")):
        values = arrays.get(name)
        require(
            name in arrays, f"has no array {name}", "store t (us), x, y and p, one of each for every event"
        )
        is_list = isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in kinds
        shape, dtype = getattr(values, "shape", ()), getattr(values, "dtype", type(values).__name__)
        require(is_list, f"has {name} of shape {shape} and type {dtype}", "store a list of integers")
        columns.append(np.asarray(values))
    t, x, y, p = columns
    lengths = [len(values) for values in columns]
    require(len(set(lengths)) == 1, "has {} t, {} x, {} y and {} p".format(*lengths), "store as many of each")
    require(len(t), "has no events", "choose another recording")
    require(
        t.min() >= 0 and t.max() < _MAX_US,
        f"has times from {t.min()} to {t.max()}",
        "store microseconds, from 0 to those of the year 2038",
    )
    t = t.astype(np.int64)
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
        stated = [np.asarray(arrays.get(name)) for name in ("width", "height")]
        require(
            all(value.shape == () and value.dtype.kind in "iu" for value in stated)
            and all(least <= value <= MAX_SIZE for least, value in zip(needed, stated, strict=True)),
            "has width = {} and height = {} with events up to x = {}, y = {}".format(
                *stated, needed[0] - 1, needed[1] - 1
            ),
            f"store two integers that hold all events, up to {MAX_SIZE}, or neither",
        )
        size = (int(stated[0]), int(stated[1]))
    return EventBatch(t, x.astype(np.uint16), y.astype(np.uint16), (p > 0).astype(np.uint8), *size)


def common_size(needed: tuple[int, int]) -> tuple[int, int]:
    """Width and height of the smallest common sensor that is at least as large, or else these very ones."""
    fitting = (size for size in _SENSORS if size[0] >= needed[0] and size[1] >= needed[1])
    return next(fitting, needed)
