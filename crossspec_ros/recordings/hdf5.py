"""Events and pictures of HDF5 recordings, whatever their layout (hdf5_layouts.py), read a block at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import h5py
import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.messages import IMAGE, RecordedMessage, image
from crossspec_ros.events.packets import MAX_SIZE
from crossspec_ros.recordings.arrays import common_size
from crossspec_ros.recordings.hdf5_file import Hdf5File, whole_numbers
from crossspec_ros.recordings.hdf5_layouts import LAYOUTS, Column, Layout, Pictures
from crossspec_ros.recordings.source import SourceRecording

EVENTS_FILE = "events.h5"
"""What a folder has in it to be taken for an HDF5 recording."""

_BLOCK = 1_000_000
_SMALLEST_LOSS = 1 << 14
"""Around a damaged place so many events are given up at most, unless the file's own chunks are larger."""
_LOOKS, _LOOK = 8, 100_000
"""Where no size of the sensor is stated, so many places of the file, of so many events, are looked at."""
# ROS time has 31 bits of seconds.
_MAX_US = (1 << 31) * 1_000_000
_MAX_PICTURE_BYTES = 64 << 20


def open_hdf5(path: Path) -> SourceRecording:
    """An HDF5 file of one of `LAYOUTS`, or a folder with such an events.h5, as a recording.

    Raises InputError when it is damaged or of no layout that is known.
    """
    file = Hdf5File(path / EVENTS_FILE if path.is_dir() else path)
    try:
        layout = find_layout(file)
        return SourceRecording(path, Hdf5Events(file, layout), find_pictures(file, layout))
    except BaseException:
        file.close()
        raise


def find_layout(file: Hdf5File) -> Layout:
    """The layout of a file; raises InputError when it has none that is known."""
    for layout in LAYOUTS:
        if all(file.has(name) for name, _ in layout.columns):
            return layout
    known = dict.fromkeys(f"{layout.name} ({layout.shown})" for layout in LAYOUTS)
    raise InputError(
        f"'{file.path}' has no events in a layout that is known, but {file.listing()}; known are "
        f"{', '.join(known)}: store t (us), x, y and p with numpy.savez('events.npz', t=t, x=x, y=y, p=p)"
    )


class Hdf5Events:
    """The events of a file as an EventSource; closing it closes the file.

    Raises InputError when there are none, or when the data sets are no events.
    """

    def __init__(self, file: Hdf5File, layout: Layout) -> None:
        self.format = f"HDF5, {layout.name}"
        self._file, self._columns = file, layout.columns
        self._data = {name: file.dataset(name) for name, _ in self._columns}
        shapes = {_column_length(file.path, self._data[name], (name, part)) for name, part in self._columns}
        if len(shapes) > 1:
            raise InputError(f"'{file.path}' has t, x, y and p that differ in length: copy it again")
        (self._count,) = shapes
        if not self._count:
            raise InputError(f"'{file.path}' has no events: choose another recording")
        self._offset = self._read_offset(layout)
        with file.naming_damage():
            self.start_us, self.end_us = (
                int(to_us(self._read(i, i + 1, layout.columns[:1])[0], self._offset)[0])
                for i in (0, self._count - 1)
            )
            self.width, self.height = self._find_size(layout)

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
                reasons.append(" ".join(str(error).split()) or type(error).__name__)
            return
        yield batch

    def _batch(self, start: int, stop: int) -> EventBatch:
        """Raises ValueError for values that no events have, and what h5py does where they cannot be read."""
        t, x, y, p = self._read(start, stop, self._columns)
        if not np.isin(p, (-1, 0, 1)).all():
            raise ValueError(f"it has polarities from {p.min()} to {p.max()}, not 0 and 1 or -1 and 1")
        return EventBatch(
            to_us(t, self._offset),
            _pixels(x, "x", self.width),
            _pixels(y, "y", self.height),
            (p > 0).astype(np.uint8),
            self.width,
            self.height,
        )

    def _read(self, start: int, stop: int, columns: Sequence[Column]) -> list[np.ndarray]:
        """These columns of some events, of any types."""
        read = {name: self._data[name][start:stop] for name, _ in columns}
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
            if not numbers or not 0 <= numbers[0] < _MAX_US:
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
        numbers = []
        if layout.size is not None and layout.size.startswith("@"):
            numbers = whole_numbers(self._file.attributes.get(layout.size[1:], ""))
        elif layout.size is not None and self._file.has(layout.size):
            numbers = whole_numbers(self._file.dataset(layout.size)[()])
        if layout.size_is_height_first:
            numbers = numbers[1::-1]
        if "width" in self._file.attributes and "height" in self._file.attributes:
            numbers = [
                *whole_numbers(self._file.attributes["width"]),
                *whole_numbers(self._file.attributes["height"]),
            ]
        if len(numbers) < 2:
            return None
        if not all(0 < number <= MAX_SIZE for number in numbers[:2]):
            raise ValueError(f"it states a sensor of {numbers[0]}x{numbers[1]}")
        return numbers[0], numbers[1]

    def close(self) -> None:
        self._file.close()


class Hdf5Images:
    """The pictures of a file as an ImageSource of raw images, in the order of their times."""

    topic = "/camera/image_raw"
    type = IMAGE

    def __init__(self, file: Hdf5File, stamps_us: np.ndarray, data: h5py.Dataset | list[str]) -> None:
        """`data` are all pictures, or the names of data sets of one."""
        self._file, self._data, self._stamps_us = file, data, stamps_us
        self._order = np.argsort(stamps_us, kind="stable").tolist()
        self.start_ns, self.end_ns = int(stamps_us.min()) * 1000, int(stamps_us.max()) * 1000

    def messages(self) -> Iterator[RecordedMessage]:
        damaged: dict[int, str] = {}
        for i in self._order:
            try:
                pixels = self._pixels(i)
            # InputError: of one that has a data set of its own.
            except (InputError, OSError, ValueError, RuntimeError, MemoryError) as error:
                damaged[i] = str(error)
                continue
            stamp_ns = int(self._stamps_us[i]) * 1000
            encoding = "mono8" if pixels.ndim == 2 else "bgr8"
            yield RecordedMessage(stamp_ns, "image", IMAGE, image(stamp_ns, pixels, encoding))
        if damaged:
            reason = " ".join(next(iter(damaged.values())).split())
            raise InputError(
                f"'{self._file.path}' has {len(damaged)} of its {len(self._order)} images in damaged parts "
                f"({reason}): copy it again"
            )

    def _pixels(self, i: int) -> np.ndarray:
        if isinstance(self._data, list):
            data = self._file.dataset(self._data[i])
            _check_picture(self._file.path, data.name, data.shape, data.dtype)
            pixels = data[()]
        else:
            pixels = self._data[i]
        return np.ascontiguousarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels)

    def close(self) -> None:
        """The events close the file."""


def find_pictures(file: Hdf5File, layout: Layout) -> Hdf5Images | None:
    """The pictures of a file, where it has any; raises InputError when they are none, or lack times."""
    for pictures in layout.pictures:
        if file.has(pictures.data):
            return _listed(file, pictures.data) if pictures.stamps is None else _stacked(file, pictures)
    return None


def _stacked(file: Hdf5File, pictures: Pictures) -> Hdf5Images | None:
    assert pictures.stamps is not None
    data, stamps = file.dataset(pictures.data), file.dataset(pictures.stamps)
    if stamps.ndim != 1 or data.shape[:1] != stamps.shape:
        raise InputError(
            f"'{file.path}' has {pictures.data} of shape {data.shape} with {pictures.stamps} of shape "
            f"{stamps.shape}: there must be one time for each image"
        )
    if not len(data):
        return None
    _check_picture(file.path, pictures.data, data.shape[1:], data.dtype)
    with file.naming_damage():
        return Hdf5Images(file, to_us(stamps[:]), data)


def _listed(file: Hdf5File, group: str) -> Hdf5Images | None:
    names = [f"{group}/{name}" for name in file.names(group)]
    if not names:
        return None
    stamps = []
    for name in names:
        with file.naming_damage():
            stamp = file.dataset(name).attrs.get("timestamp")
            if np.size(stamp) != 1 or np.asarray(stamp).dtype.kind not in "iuf":
                raise ValueError(f"the image {name} has no time in an attribute timestamp")
            stamps.append(np.asarray(stamp).reshape(()))
    with file.naming_damage():
        return Hdf5Images(file, to_us(np.array(stamps)), names)


def _check_picture(path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Raise InputError unless it is (H, W) or (H, W, 1 or 3) uint8 of a size that a camera can have."""
    is_picture = len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3))
    if not is_picture or dtype != np.uint8 or not 0 < np.prod(shape, dtype=float) <= _MAX_PICTURE_BYTES:
        raise InputError(
            f"'{path}' has images {name} of shape {shape} and type {dtype}: store (height, width) or "
            f"(height, width, 3) of uint8, up to {_MAX_PICTURE_BYTES >> 20} MB each"
        )


def to_us(times: np.ndarray, offset_us: int = 0) -> np.ndarray:
    """Times (N,) in us if they are integers, in s if they are floats, as int64 us.

    Raises ValueError for those that are not from 0 to what ROS time can express.
    """
    seconds = times.dtype.kind == "f"
    limit = _MAX_US / 1e6 if seconds else _MAX_US
    low, high = times.min(), times.max()
    # So that NaN is refused too.
    if not (low >= -limit and high < limit):
        unit = "seconds" if seconds else "us"
        raise ValueError(f"it has times from {low} to {high}, which are no {unit} before the year 2038")
    whole = np.rint(times * np.float64(1e6)).astype(np.int64) if seconds else times.astype(np.int64)
    us = whole + offset_us
    if us.min() < 0 or us.max() >= _MAX_US:
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
            f"'{path}' has '{name}' of shape {data.shape} and type {data.dtype}: store {wanted} for each of "
            f"its events"
        )
    return int(data.shape[0])
