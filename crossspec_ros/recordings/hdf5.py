"""HDF5 recordings of any layout that is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import h5py
import numpy as np

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import IMAGE, RecordedMessage, image
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
from crossspec_ros.recordings.hdf5_layouts import Column, Layout, find_layout, others_than
from crossspec_ros.recordings.recording import BEST, Asked
from crossspec_ros.recordings.sensor_size import (
    count_pixels,
    is_size,
    sensor_size,
    stated_sizes,
    whole_numbers,
)
from crossspec_ros.recordings.source import MOST_BACK, Recording, SourceRecording, count_back, damaged

_LISTED = 5
EVENTS_FILE = "events.h5"
"""What a folder has in it to be taken for an HDF5 recording."""


def open_hdf5(path: Path, asked: Asked = BEST) -> Recording:
    """An HDF5 file of one of `LAYOUTS`, or a folder with such an events.h5, as a recording.

    A folder's images may lie beside the events, in a folder images.

    Raises InputError when it is damaged or of no layout that is known.
    """
    file = Hdf5File(path / EVENTS_FILE if path.is_dir() else path)
    try:
        layout = find_layout(file)
        events = Hdf5Events(file, layout, asked)
        pictures = find_pictures(file, layout, events)
        if others := others_than(layout, file, pictures is not None):
            events.remarks = [
                f"'{file.path}' has more that is not played ({', '.join(others[:_LISTED])}): store events "
                f"in a file of their own, images as PNG in a folder for --images"
            ]
        return SourceRecording(file.path, events, pictures)
    except BaseException:
        file.close()
        raise


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
        self.format = f"HDF5, {layout.name}, times in {self.unit}, {self.width}x{self.height}"

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


_MAX_PICTURE_BYTES = 64 << 20


class Hdf5Images:
    """The pictures of a file as an ImageSource of raw images, in the order of their times."""

    topic = "/camera/image_raw"
    type = IMAGE

    def __init__(self, file: Hdf5File, stamps_us: np.ndarray, data: h5py.Dataset | list[str]) -> None:
        """`data` are all pictures, or the names of data sets of one."""
        self._file, self._stamps_us, self._data = file, stamps_us, data
        self._order = np.argsort(stamps_us, kind="stable").tolist()
        self.start_ns, self.end_ns = int(stamps_us.min()) * 1000, int(stamps_us.max()) * 1000

    def messages(self) -> Iterator[RecordedMessage]:
        damaged: dict[int, str] = {}
        for i in self._order:
            try:
                message = self._message(i)
            # InputError: of one that has a data set of its own.
            except (InputError, OSError, ValueError, RuntimeError) as error:
                damaged[i] = one_line(error)
                continue
            yield message
        if damaged:
            reason = next(iter(damaged.values()))
            raise InputError(
                f"'{self._file.path}' has {len(damaged)} of its {len(self._order)} images in damaged parts "
                f"({reason}): copy it again"
            )

    def _message(self, i: int) -> RecordedMessage:
        pixels, stamp_ns = self._pixels(i), int(self._stamps_us[i]) * 1000
        encoding = "mono8" if pixels.ndim == 2 else "bgr8"
        return RecordedMessage(stamp_ns, "image", IMAGE, image(stamp_ns, pixels, encoding))

    def _pixels(self, i: int) -> np.ndarray:
        if isinstance(self._data, list):
            data = self._file.dataset(self._data[i])
            _check_picture(self._file.path, data.name, data.shape, data.dtype)
            pixels = data[()]
        else:
            # A chunk with several of them stays in HDF5's cache.
            pixels = self._data[i]
        return np.ascontiguousarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels)

    def close(self) -> None:
        """The events close the file."""


def find_pictures(file: Hdf5File, layout: Layout, events: Hdf5Events) -> Hdf5Images | None:
    """The pictures of a file, where it has any; raises InputError when they are none, or lack times."""
    pictures = next((pictures for pictures in layout.pictures if file.has(pictures.data)), None)
    found = pictures and (
        _stack(file, pictures.data, pictures.stamps) if pictures.stamps else _listed(file, pictures.data)
    )
    if not found:
        return None
    data, stamps = found
    with file.naming_damage():
        # Numbers of the events' kind have their unit.
        are_whole = stamps.dtype.kind != "f" or bool((stamps == np.rint(stamps)).all())
        is_like_events = stamps.dtype.kind == events.kind
        stamps_us = to_us(stamps, events.unit if is_like_events else choose_unit(stamps, are_whole))
        if stamps_us.min() < 0:
            raise ValueError(f"its images have times from {stamps.min()} to {stamps.max()}")
        return Hdf5Images(file, stamps_us, data)


def _stack(file: Hdf5File, name: str, stamps_name: str) -> tuple[h5py.Dataset, np.ndarray] | None:
    data, stamps = file.dataset(name), file.dataset(stamps_name)
    if stamps.ndim != 1 or data.shape[:1] != stamps.shape:
        raise InputError(
            f"'{file.path}' has {name} of shape {data.shape} with {stamps_name} of shape {stamps.shape}: "
            f"there must be one time for each image"
        )
    if not len(data):
        return None
    _check_picture(file.path, name, data.shape[1:], data.dtype)
    with file.naming_damage():
        return data, stamps[:]


def _listed(file: Hdf5File, group: str) -> tuple[list[str], np.ndarray] | None:
    names = [f"{group}/{name}" for name in file.names(group)]
    stamps = []
    for name in names:
        stamp = np.asarray(file.attribute("timestamp", name) if file.has(name) else None)
        with file.naming_damage():
            if stamp.dtype.kind not in "iuf" or stamp.shape not in ((), (1,)):
                raise ValueError(f"the image {name} has no time in an attribute timestamp")
        stamps.append(stamp.reshape(()))
    return (names, np.array(stamps)) if names else None


def _check_picture(path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Raise InputError unless it is (H, W) or (H, W, 1 or 3) uint8 of a size that a camera can have."""
    is_picture = len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3))
    if not is_picture or dtype != np.uint8 or not 0 < np.prod(shape, dtype=float) <= _MAX_PICTURE_BYTES:
        raise InputError(
            f"'{path}' has images {name} of shape {shape} and type {dtype!s:.80}: store (height, width) or "
            f"(height, width, 3) of uint8, up to {_MAX_PICTURE_BYTES >> 20} MB each"
        )
