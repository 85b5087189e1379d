"""Pictures in HDF5 recordings, raw and with their times, whatever their layout (hdf5_layouts.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.events.cdr import IMAGE, RecordedMessage, image
from crossspec_ros.recordings.fields import choose_unit, to_us
from crossspec_ros.recordings.hdf5_events import Hdf5Events
from crossspec_ros.recordings.hdf5_file import Hdf5File
from crossspec_ros.recordings.hdf5_layouts import Layout

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
