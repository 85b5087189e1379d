"""Events of HDF5 recordings, whatever their layout (hdf5_layouts.py), read a block at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import h5py
import numpy as np

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.packets import MAX_SIZE
from crossspec_ros.recordings.arrays import MAX_US, common_size
from crossspec_ros.recordings.fields import guess_unit, power_of
from crossspec_ros.recordings.hdf5_file import Hdf5File, whole_numbers
from crossspec_ros.recordings.hdf5_layouts import Column, Layout
from crossspec_ros.recordings.unpacking import check_ratio

_BLOCK = 1_000_000
_SMALLEST_LOSS = 1 << 14
"""Around a damaged place so many events are given up at most, unless the file's own chunks are larger."""
_HEAD = 1000
"""Events whose times are looked at for their unit."""
_MOST_SIZES = 16
"""Numbers of a data set that can be a sensor's size."""
_LOOKS, _LOOK = 8, 100_000
"""Where no size of the sensor is stated, so many places of the file, of so many events, are looked at."""


class Hdf5Events:
    """The events of a file as an EventSource; closing it closes the file.

    Raises InputError when there are none, or when the data sets are no events.
    """

    def __init__(self, file: Hdf5File, layout: Layout) -> None:
        self._file, self._columns = file, layout.columns
        file.expect(name for name, _ in self._columns)
        self._data = {name: file.events(name) for name, _ in self._columns}
        shapes = {_column_length(file.path, self._data[name], (name, part)) for name, part in self._columns}
        if len(shapes) > 1:
            raise InputError(f"'{file.path}' has t, x, y and p that differ in length: copy it again")
        (self._count,) = shapes
        if not self._count:
            raise InputError(f"'{file.path}' has no events: choose another recording")
        check_ratio(file.path, file.size, sum(data.nbytes for data in self._data.values()))
        self._offset = self._read_offset(layout)
        with file.naming_damage():
            (head,), (tail,) = (
                self._read(start, start + _HEAD, layout.columns[:1])
                for start in (0, max(0, self._count - _HEAD))
            )
            self.unit, self.kind = unit_of(np.concatenate([head, tail])), head.dtype.kind
            ends = to_us(np.array([head[0], tail[-1]]), self.unit, self._offset)
            self.start_us, self.end_us = ends.tolist()
            self.width, self.height = self._find_size(layout)
        self.format = f"HDF5, {layout.name}, times in {self.unit}, {self.width}x{self.height}"

    def batches(self) -> Iterator[EventBatch]:
        lost: dict[int, int] = {}
        reasons: list[str] = []
        for start in range(0, self._count, _BLOCK):
            yield from self._block(start, min(start + _BLOCK, self._count), lost, reasons)
        if lost:
            raise InputError(
                f"'{self._file.path}' has {sum(lost.values())} of its {self._count} events in damaged parts, "
                f"the first of them at event {min(lost)} ({reasons[0]}): copy it again"
            )

    def _block(self, start: int, stop: int, lost: dict[int, int], reasons: list[str]) -> Iterator[EventBatch]:
        """What can be read of these events, in pieces where not all of them can; `lost` gets the others."""
        try:
            batch = self._batch(start, stop)
        except (OSError, ValueError, RuntimeError, MemoryError) as error:
            if stop - start > _SMALLEST_LOSS:
                middle = (start + stop) // 2
                yield from self._block(start, middle, lost, reasons)
                yield from self._block(middle, stop, lost, reasons)
            else:
                lost[start] = stop - start
                reasons.append(one_line(error))
            return
        yield batch

    def _batch(self, start: int, stop: int) -> EventBatch:
        """Raises ValueError for values that no events have, and what h5py does where they cannot be read."""
        t, x, y, p = self._read(start, stop, self._columns)
        if not np.isin(p, (-1, 0, 1)).all():
            raise ValueError(f"it has polarities from {p.min()} to {p.max()}, not 0 and 1 or -1 and 1")
        return EventBatch(
            to_us(t, self.unit, self._offset),
            _pixels(x, "x", self.width),
            _pixels(y, "y", self.height),
            (p > 0).astype(np.uint8),
            self.width,
            self.height,
        )

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
            if not numbers or not 0 <= numbers[0] < MAX_US:
                raise ValueError(f"{layout.offset} is no time in us")
            return numbers[0]

    def _find_size(self, layout: Layout) -> tuple[int, int]:
        """(width, height) as the file states it; else the usual or the smallest common one for its events."""
        stated = self._stated_size(layout)
        if stated and not layout.size_is_height_first:
            return stated
        looks = np.linspace(0, max(0, self._count - _LOOK), _LOOKS).astype(int).tolist()
        parts = [self._read(start, start + _LOOK, layout.columns[1:3]) for start in dict.fromkeys(looks)]
        needed = tuple(int(max(pixels.max() for pixels in axis)) + 1 for axis in zip(*parts, strict=True))
        # Files without pictures state the largest coordinates, which is one less.
        larger = (stated[0] + 1, stated[1] + 1) if stated else None
        if larger and common_size(larger) == larger:
            stated = larger
        swapped = (stated[1], stated[0]) if stated else None
        for size in (stated, swapped, layout.usual_size):
            if size and needed[0] <= size[0] and needed[1] <= size[1]:
                return size
        if max(needed) > MAX_SIZE:
            raise ValueError(f"it has events up to x = {needed[0] - 1}, y = {needed[1] - 1}")
        return common_size((needed[0], needed[1]))

    def _stated_size(self, layout: Layout) -> tuple[int, int] | None:
        numbers = [
            *whole_numbers(self._file.attribute("width")),
            *whole_numbers(self._file.attribute("height")),
        ]
        if len(numbers) != 2 and layout.size is not None:
            if layout.size.startswith("@"):
                numbers = whole_numbers(self._file.attribute(layout.size[1:]))
            elif self._file.has(layout.size):
                stored = self._file.dataset(layout.size)
                numbers = whole_numbers(stored[()]) if stored.size <= _MOST_SIZES else []
            if layout.size_is_height_first:
                numbers = numbers[1::-1]
        if len(numbers) < 2:
            return None
        if not all(0 < number <= MAX_SIZE for number in numbers[:2]):
            raise ValueError(f"it states a sensor of {numbers[0]}x{numbers[1]}")
        return numbers[0], numbers[1]

    def close(self) -> None:
        self._file.close()


def unit_of(times: np.ndarray, kind: str | None = None, unit: str | None = None) -> str:
    """The unit of times (N,): that of others, which are numbers of the same `kind`, or else as guessed."""
    if times.dtype.kind == kind and unit is not None:
        return unit
    return guess_unit(float(times.max()), times.dtype.kind != "f" or bool((times == np.rint(times)).all()))


def to_us(times: np.ndarray, unit: str, offset_us: int = 0) -> np.ndarray:
    """Times (N,) as int64 us; raises ValueError for those that are not from 0 to what ROS time has."""
    power = power_of(unit)
    low, high, limit = times.min(), times.max(), MAX_US * 10.0**-power
    # So that NaN is refused too.
    if not (low >= -limit and high < limit):
        raise ValueError(f"it has times from {low} to {high}, which are no {unit} before the year 2038")
    if times.dtype.kind == "f":
        us = np.rint(times.astype(np.float64) * 10.0**power).astype(np.int64)
    else:
        us = times.astype(np.int64)
        us = us * 10**power if power >= 0 else us // 10**-power
    us += offset_us
    if us.min() < 0 or us.max() >= MAX_US:
        raise ValueError(f"it has times from {us.min()} to {us.max()} us")
    return us


def _pixels(values: np.ndarray, name: str, size: int) -> np.ndarray:
    low, high = values.min(), values.max()
    if not (low >= 0 and high < size):
        raise ValueError(
            f"it has {name} from {low} to {high} on a sensor with {size}; attributes width and height of the "
            f"file can state another"
        )
    if values.dtype.kind == "f" and not np.array_equal(values, np.rint(values)):
        raise ValueError(f"it has {name} between pixels, as rectified events do")
    return values.astype(np.uint16)


def _column_length(path: Path, data: h5py.Dataset, column: Column) -> int:
    """How many events a column is of; raises InputError when it is none."""
    name, part = column
    fits = {
        type(None): data.ndim == 1 and data.dtype.names is None,
        str: data.ndim == 1 and part in (data.dtype.names or ()),
        int: data.ndim == 2 and data.dtype.names is None and 4 <= data.shape[1] <= 8,
    }[type(part)]
    if not fits:
        wanted = {str: f"a field {part}", int: "four columns"}.get(type(part), "one number")
        raise InputError(
            f"'{path}' has '{name}' of shape {data.shape} and type {data.dtype!s:.80}: store {wanted} for "
            f"each of its events"
        )
    return int(data.shape[0])
