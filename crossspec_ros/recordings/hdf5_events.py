"""Events of HDF5 recordings, whatever their layout (hdf5_layouts.py), read a block at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import h5py
import numpy as np

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.recordings.arrays import (
    MOST_STRAY,
    NAMED,
    leaving_open,
    no_events,
    sound_events,
    unsorted,
)
from crossspec_ros.recordings.fields import (
    MOST_COLUMNS,
    ROLES,
    Profile,
    choose_unit,
    is_whole,
    read_columns,
    to_us,
)
from crossspec_ros.recordings.hdf5_file import Hdf5File
from crossspec_ros.recordings.hdf5_layouts import Column, Layout
from crossspec_ros.recordings.recording import BEST, Asked
from crossspec_ros.recordings.sensor_size import (
    count_pixels,
    is_size,
    sensor_size,
    stated_sizes,
    whole_numbers,
)
from crossspec_ros.recordings.source import MOST_BACK, count_back, damaged

_BLOCK = 1_000_000
_SMALLEST_LOSS = 1 << 14
"""Around a damaged place so many events are given up at most, unless the file's own chunks are larger."""
_LOOKS, _LOOK = 8, 100_000
"""So many places, of so many events each, are looked at for size, unit and what is wrong as a whole."""
_MOST_BLOCKS = 32
"""Rows of a table that are looked at for what its columns are."""


class Hdf5Events:
    """The events of a file as an EventSource; closing it closes the file.

    Raises InputError when there are none, or when the data sets are no events.
    """

    remarks: Sequence[str] = ()

    def __init__(self, file: Hdf5File, layout: Layout, asked: Asked = BEST) -> None:
        self._file, self._columns = file, layout.columns
        self._data = {name: file.events(name) for name, _ in self._columns}
        shapes = {_column_length(file.path, self._data[name], (name, part)) for name, part in self._columns}
        if len(shapes) > 1:
            raise InputError(f"'{file.path}' has t, x, y and p that differ in length: copy it again")
        (self._count,) = shapes
        if not self._count:
            raise InputError(f"'{file.path}' has no events: choose another recording")
        said: str | None = asked.time_unit
        if len(self._columns) == 1:
            said = self._find_columns(asked) or said
        elif asked.columns:
            raise InputError(f"'{file.path}' leaves nothing open: {NAMED}")
        looks: list[list[np.ndarray]] = []
        lost: dict[int, int] = {}
        reasons: list[str] = []
        for start in dict.fromkeys(np.linspace(0, max(0, self._count - _LOOK), _LOOKS).astype(int).tolist()):
            looks += self._pieces(start, min(start + _LOOK, self._count), lost, reasons)
        with file.naming_damage():
            if not looks:
                raise ValueError(reasons[0])
            with leaving_open(file.path):
                self.width, self.height = self._find_size(layout, looks)
        t = np.concatenate([times for times, *_ in looks])
        self.kind, size = t.dtype.kind, (self.width, self.height)
        fractions = np.count_nonzero(t != np.rint(t)) if self.kind == "f" else 0
        with leaving_open(file.path):
            are_whole = is_whole(int(fractions), len(t))
            self.unit = choose_unit(t.astype(np.float64), are_whole, self._count, size, said, layout.unit)
        self._offset_us = self._read_offset(layout)
        damage: Counter[str] = Counter()
        sound = [self._sound(look, damage).t for look in looks]
        ends = [times for times in sound if len(times)]
        if not ends or damage.total() > MOST_STRAY * len(t):
            raise no_events(file.path, [*map(np.concatenate, zip(*looks, strict=True))], self.unit, size)
        # The looks may overlap, so each is judged by itself, and their order by a time that no stray moves.
        back = sum(map(count_back, ends)) > MOST_BACK * sum(map(len, ends))
        if back or count_back(np.array([np.median(times) for times in ends])):
            raise unsorted(file.path)
        self.start_us, self.end_us = int(ends[0][0]), int(ends[-1][-1])
        self.format = f"HDF5, {layout.name}, times in {self.unit}, {self.width}x{self.height}{self._assumed}"

    def _find_columns(self, asked: Asked) -> str | None:
        """Find which columns of a table are which; returns the unit that was said with them."""
        ((name, _),) = self._columns
        data = self._data[name]
        profile = Profile(data.shape[1])
        step = max(_BLOCK, -(-self._count // _MOST_BLOCKS))
        with self._file.naming_damage():
            for start in range(0, self._count, step):
                rows = data[start : start + _BLOCK].astype(np.float64)
                profile.add(rows[np.isfinite(rows).all(axis=1)])
        with leaving_open(self._file.path):
            roles, unit = read_columns(asked.columns) if asked.columns else (profile.roles(), None)
            profile.check(roles)
        self._columns = tuple((name, roles[role]) for role in ROLES)
        return unit

    def batches(self) -> Iterator[EventBatch]:
        lost: dict[int, int] = {}
        reasons: list[str] = []
        damage: Counter[str] = Counter()
        for start in range(0, self._count, _BLOCK):
            for columns in self._pieces(start, min(start + _BLOCK, self._count), lost, reasons):
                yield self._sound(columns, damage)
        if lost:
            raise InputError(
                f"'{self._file.path}' has {sum(lost.values())} of its {self._count} events in damaged parts, "
                f"the first of them at event {min(lost)} ({reasons[0]}): copy it again"
            )
        if +damage:
            raise damaged(self._file.path, damage)

    def _pieces(
        self, start: int, stop: int, lost: dict[int, int], reasons: list[str]
    ) -> Iterator[list[np.ndarray]]:
        """What can be read of these events, in pieces where not all of them can; `lost` gets the others."""
        try:
            columns = self._read(start, stop, self._columns)
        except (OSError, ValueError, RuntimeError) as error:
            if stop - start > _SMALLEST_LOSS:
                middle = (start + stop) // 2
                yield from self._pieces(start, middle, lost, reasons)
                yield from self._pieces(middle, stop, lost, reasons)
            else:
                lost[start] = stop - start
                reasons.append(one_line(error))
            return
        yield columns

    def _sound(self, columns: Sequence[np.ndarray], damage: Counter[str]) -> EventBatch:
        t, x, y, p = columns
        return sound_events(to_us(t, self.unit, self._offset_us), x, y, p, (self.width, self.height), damage)

    def _read(self, start: int, stop: int, columns: Sequence[Column]) -> list[np.ndarray]:
        """These columns of some events, of any types."""
        read = {name: self._data[name][start:stop] for name in {name for name, _ in columns}}
        return [
            read[name][:, part] if isinstance(part, int) else read[name] if part is None else read[name][part]
            for name, part in columns
        ]

    def _read_offset(self, layout: Layout) -> int:
        if layout.offset is None or not self._file.has(layout.offset):
            return 0
        data = self._file.dataset(layout.offset)
        with self._file.naming_damage():
            numbers = whole_numbers(data[()]) if data.size == 1 else []
            offset_us = int(to_us(np.array(numbers or [-1]), self.unit)[0])
            if offset_us < 0:
                raise InputError(
                    f"'{self._file.path}' has {layout.offset} = {data[()]!s:.80}, which is no time in "
                    f"{self.unit} as those of its events are: store a whole number of {self.unit} there"
                )
            return offset_us

    def _find_size(self, layout: Layout, looks: Sequence[Sequence[np.ndarray]]) -> tuple[int, int]:
        """(width, height) as the file states it; else the usual or the smallest common one for its events."""
        sizes = self._stated_sizes(layout)
        self._assumed = "" if sizes else " assumed"
        counts = np.sum([[count_pixels(axis) for axis in look[1:3]] for look in looks], axis=0)
        found = sensor_size(counts, [*sizes, *([layout.usual_size] if layout.usual_size else [])])
        return sizes[0] if len(sizes) == 1 else found

    def _stated_sizes(self, layout: Layout) -> list[tuple[int, int]]:
        """Stated sizes: attributes or data sets of the file, the events, or their or the layout's group."""
        group = self._columns[0][0].rpartition("/")[0]
        nodes = [self._columns[0][0], group or "/", "/"]
        if layout.size_group and self._file.is_group(layout.size_group):
            nodes.append(layout.size_group)
        for node in dict.fromkeys(nodes):
            sizes = stated_sizes(partial(self._stated, node))
            if sizes and not is_size(*sizes[0]):
                raise ValueError("it states a sensor of {}x{}".format(*sizes[0]))
            if sizes:
                return sizes
        return []

    def _stated(self, node: str, name: str) -> object:
        value = self._file.attribute(name, node)
        if value is not None:
            return value
        path = f"{node}/{name}".strip("/")
        fits = self._file.fields(path) in (((), ()), ((), (1,)), ((), (2,)))
        return self._file.dataset(path)[()] if fits else None

    def close(self) -> None:
        self._file.close()


def _column_length(path: Path, data: h5py.Dataset, column: Column) -> int:
    """How many events a column is of; raises InputError when it is none."""
    name, part = column
    fits = {
        type(None): data.ndim == 1 and data.dtype.names is None,
        str: data.ndim == 1 and part in (data.dtype.names or ()),
        int: data.ndim == 2 and data.dtype.names is None and 4 <= data.shape[1] <= MOST_COLUMNS,
    }[type(part)]
    if not fits:
        wanted = {str: f"a field {part}", int: "four columns"}.get(type(part), "one number")
        raise InputError(
            f"'{path}' has '{name}' of shape {data.shape} and type {data.dtype!s:.80}: store {wanted} for "
            f"each of its events"
        )
    return int(data.shape[0])
