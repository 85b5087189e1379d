"""HDF5 recordings in the documented layouts of DSEC, MVSEC, M3ED, EvQA, E2VID, Prophesee and v2e.

Sources: https://dsec.ifi.uzh.ch/data-format, https://daniilidis-group.github.io/mvsec,
https://m3ed.io/data_overview/datafiles, https://github.com/HYLZ-2019/EvQA,
https://github.com/TimoStoff/event_utils (E2VID),
https://docs.prophesee.ai/stable/data/file_formats/hdf5.html and https://github.com/SensorsINI/v2e.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.events.batch import is_sensor
from crossspec_ros.events.cdr import image
from crossspec_ros.recordings.ecf import EcfDataset, filters_of, is_ecf
from crossspec_ros.recordings.options import DEFAULT_OPTIONS, ReadOptions
from crossspec_ros.recordings.source import StampedImages
from crossspec_ros.recordings.tables import (
    BLOCK,
    Block,
    Columns,
    TableEvents,
    choose_columns,
    to_us,
)

with suppress(ImportError):
    import hdf5plugin  # noqa: F401, its import registers its filters with HDF5

_CACHE_BYTES = 64 << 20
"""Cache for unpacked chunks of each data set."""

Column = tuple[str, int | str | None]
"""Data set, and the column of (N, k) or the field that is meant; None for all of (N,)."""


class Layout(NamedTuple):
    """Places of events and images in a file."""

    name: str
    events: tuple[Column, ...]
    """t, x, y and p."""
    unit: str
    size: str | None = None
    """Attribute or data set with both sides of the sensor."""
    usual_size: tuple[int, int] | None = None
    """(width, height) of the data set's camera, for files that do not state it."""
    images: tuple[tuple[str, str], ...] = ()
    """Data sets of images and of their times; for a group, the attribute of each image with its time."""
    mark: str = ""
    """Attribute of the file that another layout with the same data sets lacks."""


def _lists(group: str, names: str = "t x y p") -> tuple[Column, ...]:
    return tuple((f"{group}/{name}", None) for name in names.split())


def _parts(name: str, *parts: int | str) -> tuple[Column, ...]:
    return tuple((name, part) for part in parts)


_M3ED_SIZE = "prophesee/left/calib/resolution"
_M3ED_IMAGES = (("ovc/rgb/data", "ovc/ts"), ("ovc/left/data", "ovc/ts"))
_E2VID, _E2VID_IMAGES = _lists("events", "ts xs ys ps"), (("images", "timestamp"),)
_MVSEC_IMAGES = (("davis/left/image_raw", "davis/left/image_raw_ts"),)
LAYOUTS = (
    Layout("DSEC", _lists("events"), "us"),
    Layout("MVSEC", _parts("davis/left/events", 2, 0, 1, 3), "s", None, (346, 260), _MVSEC_IMAGES),
    Layout("M3ED", _lists("prophesee/left"), "us", _M3ED_SIZE, (1280, 720), _M3ED_IMAGES),
    Layout("EvQA", _E2VID, "us", "sensor_resolution", None, _E2VID_IMAGES, mark="base_time"),
    Layout("E2VID", _E2VID, "s", "sensor_resolution", None, _E2VID_IMAGES),
    Layout("Prophesee", _parts("CD/events", "t", "x", "y", "p"), "us", "geometry"),
    Layout("v2e", _parts("events", 0, 1, 2, 3), "us", images=(("frame", "frame_ts"),)),
)


class Hdf5File:
    """An open file of which links and data in other files are refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = h5py.File(path, "r", rdcc_nbytes=_CACHE_BYTES)

    def get(self, name: str) -> h5py.Group | h5py.Dataset | None:
        """Return a group, or a data set of numbers; None where there is nothing of that name."""
        node = self._file
        for part in name.split("/"):
            # `in` and `[]` would open the file that a link leads to.
            link = node.get(part, getlink=True) if isinstance(node, h5py.Group) else None
            if link is None:
                return None
            if not isinstance(link, h5py.HardLink):
                raise InputError(f"'{self.path}' has a link in place of '{name}': store the data there")
            node = node[part]
        if isinstance(node, h5py.Dataset):
            kinds = {node.dtype[field].kind for field in node.dtype.names or ()} or {node.dtype.kind}
            if node.is_virtual or node.external or not kinds <= {*"iufb"}:
                raise InputError(f"'{self.path}' has no numbers of its own in '{name}': store them there")
        return node

    def dataset(self, name: str) -> h5py.Dataset:
        """Return a data set of numbers; raises InputError without one."""
        node = self.get(name)
        if not isinstance(node, h5py.Dataset):
            raise InputError(f"'{self.path}' has no data set '{name}': copy it again")
        unknown = [number for number in filters_of(node) if not h5py.h5z.filter_avail(number)]
        if unknown and not is_ecf(node):
            raise InputError(
                f"'{self.path}' is packed with the unknown filter {unknown[0]}: pip install hdf5plugin, or "
                f"pack it anew with `h5repack -f GZIP=4`"
            )
        return node

    def numbers(self, name: str) -> list[int]:
        """Return the few numbers of an attribute or a data set, or in a text such as 1280x720; else none."""
        group, _, last = name.rpartition("/")
        node = self.get(group) if group else self._file
        found = node.attrs.get(last) if node is not None else None
        if found is None and isinstance(data := self.get(name), h5py.Dataset) and data.size <= 2:
            found = data[()]
        if isinstance(found, bytes | str):
            found = [int(number) for number in re.findall(r"\d+", str(found))]
        return [] if found is None else [int(number) for number in np.asarray(found).reshape(-1)]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Hdf5Recording(TableEvents):
    """The events and images of a file in one of `LAYOUTS`.

    `usual_size` is (width, height) where the file states none. Raises InputError when the file has another
    layout, and as `TableEvents` does.
    """

    def __init__(
        self,
        path: Path,
        options: ReadOptions = DEFAULT_OPTIONS,
        usual_size: tuple[int, int] | None = None,
    ) -> None:
        self._file = file = Hdf5File(path)
        self.layout = _find_layout(file)
        data = {name: file.dataset(name) for name, _ in self.layout.events}
        self._data = {name: EcfDataset(one) if is_ecf(one) else one for name, one in data.items()}
        lengths = {one.shape[0] for one in data.values()}
        if len(lengths) > 1:
            raise InputError(f"'{file.path}' has t, x, y and p that differ in length: copy it again")
        (self._length,) = lengths
        name, part = self.layout.events[0]
        kind = (data[name].dtype[part] if isinstance(part, str) else data[name].dtype).kind
        # Each layout documents integer us or fractional seconds. Another type means another layout.
        found = Columns(0, 1, 2, 3, self.layout.unit if (self.layout.unit == "s") == (kind == "f") else "")
        self.unit = choose_columns(file.path, options, found, None).unit
        self._offset, *_ = file.numbers("t_offset") or [0]
        size = _stated_size(file, self.layout) or usual_size or self.layout.usual_size
        description = f"HDF5, {self.layout.name}, times in {self.unit}"
        super().__init__(file.path, description, self._read_blocks, size)
        if images := _open_images(file, self):
            self.use_images(images.messages)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _rows(self, start: int, stop: int) -> list[np.ndarray]:
        read = {name: data[start:stop] for name, data in self._data.items()}
        return [
            read[name] if part is None else read[name][:, part] if isinstance(part, int) else read[name][part]
            for name, part in self.layout.events
        ]

    def _read_blocks(self) -> Iterator[Block]:
        damage: list[str] = []
        for start in range(0, self._length, BLOCK):
            try:
                t, x, y, p = self._rows(start, start + BLOCK)
            except (OSError, ValueError, RuntimeError) as error:
                damage.append(one_line(error))
            else:
                yield Block(to_us(t, self.unit, self._offset), x, y, p)
        if damage:
            raise InputError(
                f"'{self._file.path}' has {len(damage)} damaged parts of up to {BLOCK} events ({damage[0]}): "
                f"copy it again"
            )


def _find_layout(file: Hdf5File) -> Layout:
    for layout in LAYOUTS:
        is_marked = not layout.mark or bool(file.numbers(layout.mark))
        if is_marked and all(_has_column(file, column) for column in layout.events):
            return layout
    layouts = ", ".join(f"{layout.name} ({layout.events[0][0]})" for layout in LAYOUTS)
    raise InputError(
        f"'{file.path}' has no events in one of the layouts {layouts}: store t (us), x, y and p with "
        f"numpy.savez('events.npz', t_us=t, x=x, y=y, p=p)"
    )


def _has_column(file: Hdf5File, column: Column) -> bool:
    name, part = column
    data = file.get(name)
    if not isinstance(data, h5py.Dataset):
        return False
    if isinstance(part, int):
        return data.ndim == 2 and data.shape[1] >= 4
    return data.ndim == 1 and (part is None or part in (data.dtype.names or ()))


def _stated_size(file: Hdf5File, layout: Layout) -> tuple[int, int] | None:
    """Return (width, height) as the file states it, or those of v2e's frames."""
    group = layout.events[0][0].rpartition("/")[0]
    found: list[int] = []
    for prefix in (f"{group}/" if group else "", ""):
        found = found or [number for side in ("width", "height") for number in file.numbers(prefix + side)]
    if not found and layout.size:
        # E2VID and EvQA state the height first; no sensor is higher than it is wide.
        found = sorted(file.numbers(layout.size), reverse=True)
    if not found and layout.name == "v2e" and file.get("frame") is not None:
        found = [*file.dataset("frame").shape[:0:-1]]
    if found and (len(found) != 2 or not is_sensor(*found)):
        raise InputError(f"'{file.path}' states a sensor of {found} pixels: correct its width and height")
    return (found[0], found[1]) if found else None


def _open_images(file: Hdf5File, events: Hdf5Recording) -> StampedImages | None:
    for name, stamps_name in events.layout.images:
        node = file.get(name)
        if isinstance(node, h5py.Group) and len(node):
            data = [file.dataset(f"{name}/{part}") for part in sorted(node)]
            stamps = np.array([float(one.attrs[stamps_name]) for one in data])
        elif isinstance(node, h5py.Dataset) and len(node):
            data, stamps = node, file.dataset(stamps_name)[:]
        else:
            continue
        stamps_us = to_us(stamps, events.unit)
        if len(stamps) != len(data) or stamps_us.min() < 0:
            raise InputError(f"'{file.path}' has no valid time for each image of '{name}': copy it again")
        return StampedImages((stamps_us * 1000).tolist(), partial(_read_image, data))
    return None


def _read_image(data: list[h5py.Dataset] | h5py.Dataset, index: int, stamp_ns: int) -> bytes:
    pixels = np.squeeze(data[index])
    encoding = {2: "mono8", 3: "bgr8"}[pixels.ndim]
    return image(stamp_ns, np.ascontiguousarray(pixels, np.uint8), encoding)
