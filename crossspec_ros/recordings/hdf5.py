"""HDF5 recordings of any layout that is known."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path

import h5py
import numpy as np

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.events.cdr import IMAGE, RecordedMessage, image
from crossspec_ros.recordings.arrays import (
    BLOCK,
    NAMED,
    ColumnEvents,
    ColumnFile,
    table_roles,
)
from crossspec_ros.recordings.fields import choose_unit, to_us
from crossspec_ros.recordings.hdf5_file import Hdf5File
from crossspec_ros.recordings.hdf5_layouts import Column, Layout, find_layout, others_than
from crossspec_ros.recordings.names import COLUMN_NAMES, MOST_COLUMNS, OFFSET_NAMES, ROLES, texts_of, unit_of
from crossspec_ros.recordings.options import DEFAULT_OPTIONS, ReadOptions
from crossspec_ros.recordings.sensor_size import (
    is_size,
    stated_sizes,
)
from crossspec_ros.recordings.soundness import leaving_open, not_played
from crossspec_ros.recordings.source import Recording, SourceRecording

EVENTS_FILE = "events.h5"
"""File that makes a folder an HDF5 recording."""


def open_hdf5(path: Path, asked: ReadOptions = DEFAULT_OPTIONS) -> Recording:
    """An HDF5 file of one of `LAYOUTS`, or a folder with such an events.h5, as a recording.

    A folder's images may lie beside the events, in a folder images.

    Raises InputError when it is damaged or of no layout that is known.
    """
    file = Hdf5File(path / EVENTS_FILE if path.is_dir() else path)
    try:
        layout = find_layout(file)
        events = Hdf5Events(file, layout, asked)
        pictures = find_pictures(file, layout, events)
        if others := [*events.unused, *others_than(layout, file, pictures is not None)]:
            events.remarks.append(not_played(file.path, others))
        return SourceRecording(file.path, events, pictures)
    except BaseException:
        file.close()
        raise


_MOST_BLOCKS = 32
"""Blocks of a table that are looked at for what its columns are."""


class Hdf5Events(ColumnEvents):
    """The events of a file as an EventSource; closing it closes the file.

    Raises InputError when there are none, or when the data sets are no events.
    """

    def __init__(self, file: Hdf5File, layout: Layout, asked: ReadOptions = DEFAULT_OPTIONS) -> None:
        self._file, columns = file, _Hdf5Columns(file, layout, asked)
        container = f"HDF5, {layout.name}"
        super().__init__(file.path, [file.path], lambda path: columns, container, asked.time_unit)
        self.unused = columns.unused
        self.width, self.height = self.size

    def close(self) -> None:
        self._file.close()


class _Hdf5Columns(ColumnFile):
    """The events of a file as a ColumnFile."""

    is_sampled = True

    def __init__(self, file: Hdf5File, layout: Layout, asked: ReadOptions) -> None:
        self._file, self._layout, self._places = file, layout, layout.columns
        self._data = {name: file.events(name) for name, _ in self._places}
        self.unit, self.usual_size = layout.unit, layout.usual_size
        self._nodes = self._find_nodes()
        # Told together with the other data sets.
        self.unused: list[str] = []
        lengths = {_column_length(file.path, self._data[name], (name, part)) for name, part in self._places}
        if len(lengths) > 1:
            raise InputError(f"'{file.path}' has t, x, y and p that differ in length: copy it again")
        (self.length,) = lengths
        if len(self._places) == 1 and self.length:
            self._find_columns(asked)
        elif asked.columns and len(self._places) > 1:
            raise InputError(f"'{file.path}' leaves nothing open: {NAMED}")
        t, part = self._places[0]
        own = unit_of(partial(self._stated, t), is_of_times=part is None)
        others = (unit_of(partial(self._stated, node)) for node in self._nodes)
        self.unit = self.unit or own or next(filter(None, others), None)
        for node, name in product(self._nodes, OFFSET_NAMES):
            # At the top others may be those of other sensors.
            if node == "/" and name != OFFSET_NAMES[0]:
                continue
            value = self._stated(node, name)
            if value is None and (fields := file.fields(f"{node}/{name}".strip("/"))):
                value = f"data of shape {fields[1]}"
            if value is not None and self.offset is None:
                self.offset = name, value

    def _find_columns(self, asked: ReadOptions) -> None:
        """Find which columns of a table are which."""
        ((name, _),) = self._places
        step = max(BLOCK, -(-self.length // _MOST_BLOCKS))
        with self._file.naming_damage(), leaving_open(self._file.path):
            stated = (self._file.attribute(one, node) for node in self._nodes for one in COLUMN_NAMES)
            names = next((texts for value in stated if (texts := texts_of(value))), [])
            found = table_roles(self._data[name], range(0, self.length, step), asked, names)
        self.said, self.unit = (found.unit, None) if asked.columns else (None, found.unit)
        self.unused = [f"{name}, {other}" for other in found.names]
        self._places = tuple((name, found.roles[role]) for role in ROLES)

    def read(self, start: int, stop: int) -> list[np.ndarray]:
        read = {name: data[start:stop] for name, data in self._data.items()}
        return [
            read[name][:, part] if isinstance(part, int) else read[name] if part is None else read[name][part]
            for name, part in self._places
        ]

    def _find_nodes(self) -> list[str]:
        """Nodes that may state something of the events: themselves, their or the layout's group, the file."""
        group = self._places[0][0].rpartition("/")[0]
        nodes = [self._places[0][0], group or "/", "/"]
        if self._layout.size_group and self._file.is_group(self._layout.size_group):
            nodes.append(self._layout.size_group)
        return [*dict.fromkeys(nodes)]

    def stated_sizes(self) -> list[tuple[int, int]]:
        """Stated sizes: attributes or data sets."""
        with self._file.naming_damage():
            for node in self._nodes:
                sizes = stated_sizes(partial(self._stated, node))
                if sizes and not is_size(*sizes[0]):
                    raise ValueError("it states a sensor of {}x{}".format(*sizes[0]))
                if sizes:
                    return sizes
        return []

    def _stated(self, node: str, name: str) -> object:
        value = self._file.attribute(name, node)
        return self._file.statement(f"{node}/{name}".strip("/")) if value is None else value


def _column_length(path: Path, data: h5py.Dataset, column: Column) -> int:
    """Number of events of a column; raises InputError when it is none."""
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
