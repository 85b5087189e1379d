"""Sequences in the directory format of the DSEC data set (https://dsec.ifi.uzh.ch), read and written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import h5py
import hdf5plugin
import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch

EVENTS_FILE = "events/left/events.h5"
FRAMES_FOLDER = "images/left/rectified"
FRAME_STAMPS_FILE = "images/timestamps.txt"
# Of DSEC's cameras; a sequence of another camera says so in the attributes of its events.h5.
_WIDTH, _HEIGHT = 640, 480


def is_dsec(path: Path) -> bool:
    return (path / EVENTS_FILE).exists()


class DsecSequence:
    """One sequence: events of the left event camera, and frames of the left RGB camera where it has them.

    All times are of the sequence's clock, in absolute us for events and ns for frames. Raises InputError when
    something is missing or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._name_damage():
            # DSEC's chunks are larger than HDF5's default cache, so each would be unpacked again and again.
            self._file = h5py.File(path / EVENTS_FILE, rdcc_nbytes=64 << 20)
        try:
            with self._name_damage():
                self._read_index()
            self._find_frames()
        except BaseException:
            self.close()
            raise

    def _read_index(self) -> None:
        events = self._file["events"]
        self._t, self._x, self._y, self._p = (events[name] for name in "txyp")
        self._ms_to_index = self._file["ms_to_idx"][:].astype(np.int64)
        self._t_offset = int(self._file["t_offset"][()])
        self.width = int(self._file.attrs.get("width", _WIDTH))
        self.height = int(self._file.attrs.get("height", _HEIGHT))
        shapes = [data.shape for data in (self._t, self._x, self._y, self._p)]
        if len(shapes[0]) != 1 or len(set(shapes)) > 1:
            raise ValueError("t, x, y and p differ in length or are no lists")
        if not len(self._t) or not len(self._ms_to_index):
            raise ValueError("it has no events")
        self.t_start_us = int(self._t[0]) + self._t_offset
        self.t_end_us = int(self._t[-1]) + self._t_offset

    def _find_frames(self) -> None:
        self._frames = sorted((self.path / FRAMES_FOLDER).glob("*.png"))
        stamps = self.path / FRAME_STAMPS_FILE
        try:
            times_us = stamps.read_text().split() if self._frames else []
            self.frame_stamps_ns = np.array(times_us, np.int64) * 1000
        except (OSError, ValueError) as error:
            raise InputError(
                f"'{stamps}' cannot be read ({error}): it must hold one time in us for each frame"
            ) from error
        if len(self._frames) != len(self.frame_stamps_ns):
            raise InputError(
                f"'{self.path}' has {len(self._frames)} frames but {len(self.frame_stamps_ns)} times in "
                f"{FRAME_STAMPS_FILE}: copy the sequence again"
            )

    def close(self) -> None:
        self._file.close()

    def events(self, start_us: int, end_us: int) -> EventBatch:
        """The events with start_us <= t < end_us."""
        start, end = start_us - self._t_offset, end_us - self._t_offset
        index = self._ms_to_index
        first = int(index[min(max(start // 1000, 0), len(index) - 1)])
        last_ms = max(end // 1000, 0) + 1
        last = int(index[last_ms]) if last_ms < len(index) else len(self._t)
        with self._name_damage():
            t = self._t[first:last].astype(np.int64)
            low, high = np.searchsorted(t, (start, end))
            where = slice(first + int(low), first + int(high))
            x, y, p = (data[where] for data in (self._x, self._y, self._p))
        return EventBatch(
            t[low:high] + self._t_offset,
            x.astype(np.uint16, copy=False),
            y.astype(np.uint16, copy=False),
            p.astype(np.uint8, copy=False),
            self.width,
            self.height,
        )

    def frame_bytes(self, i: int) -> bytes:
        """The i-th frame as it lies on disk, a PNG; raises InputError when it cannot be read."""
        try:
            return self._frames[i].read_bytes()
        except OSError as error:
            raise InputError(
                f"the frame '{self._frames[i]}' cannot be read ({error}): copy the sequence again"
            ) from error

    def frame(self, i: int) -> np.ndarray:
        """The i-th frame (H, W, 3) uint8 RGB; raises InputError when it is damaged."""
        pixels = cv2.imdecode(np.frombuffer(self.frame_bytes(i), np.uint8), cv2.IMREAD_COLOR)
        if pixels is None:
            raise InputError(f"the frame '{self._frames[i]}' is no picture: copy the sequence again")
        return cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)

    @contextmanager
    def _name_damage(self) -> Iterator[None]:
        try:
            yield
        # RuntimeError: how h5py reports some damage, beside OSError; KeyError: data sets are missing.
        except (OSError, KeyError, ValueError, RuntimeError) as error:
            raise InputError(
                f"'{self.path / EVENTS_FILE}' is truncated or not in DSEC's layout ({error}): copy it again"
            ) from error


def write_events_h5(path: Path, batch: EventBatch, t_offset: int) -> None:
    """Write `events.h5` in DSEC's layout; `batch.t` is absolute, in order, and not before `t_offset` us.

    Raises ValueError for times that do not fit: the file holds 32 bits of us over `t_offset`.
    """
    t = batch.t - t_offset
    if not len(t) or t[0] < 0 or t[-1] >= 1 << 32 or np.any(t[1:] < t[:-1]):
        raise ValueError("DSEC needs events in order, within 71 minutes from t_offset")
    # ms_to_idx[ms] is the first event at or after that millisecond, up to the millisecond of the last event.
    ms_to_index = np.searchsorted(t, np.arange(int(t[-1]) // 1000 + 1) * 1000)
    packed = hdf5plugin.Blosc(cname="zstd", clevel=5, shuffle=hdf5plugin.Blosc.SHUFFLE)
    with h5py.File(path, "w") as file:
        for name, values in (("x", batch.x), ("y", batch.y), ("t", t.astype(np.uint32)), ("p", batch.p)):
            file.create_dataset(f"events/{name}", data=values, compression=packed, chunks=True)
        file.create_dataset("ms_to_idx", data=ms_to_index.astype(np.uint64), compression=packed, chunks=True)
        file.create_dataset("t_offset", data=np.int64(t_offset))
        file.attrs["width"], file.attrs["height"] = batch.width, batch.height
