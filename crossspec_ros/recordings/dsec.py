"""Sequences in the directory format of the DSEC data set (https://dsec.ifi.uzh.ch), read and written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import h5py
import hdf5plugin
import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.camera_images import compressed_array
from crossspec_ros.events.packets import MAX_US
from crossspec_ros.recordings.hdf5 import find_layout
from crossspec_ros.recordings.hdf5_events import Hdf5Events
from crossspec_ros.recordings.hdf5_file import Hdf5File
from crossspec_ros.recordings.recording import DSEC_EVENTS
from crossspec_ros.recordings.source import read_picture, read_times

_SENSOR = (640, 480)
"""Width and height of its event cameras, where a file does not say them."""
EVENTS_FILE = DSEC_EVENTS
FRAMES_FOLDER = "images/left/rectified"
DISTORTED_FOLDER = "images/left/distorted"
"""Frames in the events' view, as dsec-det has them."""
FRAME_STAMPS_FILE = "images/timestamps.txt"


class DsecSequence:
    """One sequence: events of the left event camera, and frames of the left RGB camera where it has them.

    All times are of the sequence's clock, in absolute us for events and ns for frames. Raises InputError when
    something is missing or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        file = Hdf5File(path / EVENTS_FILE)
        try:
            layout = replace(find_layout(file), usual_size=_SENSOR)
            self.events = Hdf5Events(file, layout)
            self._find_frames()
        except BaseException:
            file.close()
            raise

    def _find_frames(self) -> None:
        for self.frames_folder in (FRAMES_FOLDER, DISTORTED_FOLDER):
            found = (self.path / self.frames_folder).glob("*.png")
            self._frames = sorted(path for path in found if path.is_file())
            if self._frames:
                break
        else:
            self.frames_folder = FRAMES_FOLDER
        stamps = self.path / FRAME_STAMPS_FILE
        try:
            times_us = read_times(stamps, len(self._frames)).split() if self._frames else []
            stamps_us = np.array(times_us, np.int64)
            if ((stamps_us < 0) | (stamps_us >= MAX_US)).any():
                raise ValueError(f"it has times from {stamps_us.min()} to {stamps_us.max()}")
            self.frame_stamps_ns = stamps_us * 1000
        except (OSError, ValueError, OverflowError) as error:
            raise InputError(
                f"'{stamps}' cannot be read ({error}): it must hold one time in us for each frame"
            ) from error
        if len(self._frames) != len(self.frame_stamps_ns):
            raise InputError(
                f"'{self.path}' has {len(self._frames)} frames but {len(self.frame_stamps_ns)} times in "
                f"{FRAME_STAMPS_FILE}: copy the sequence again"
            )

    def close(self) -> None:
        self.events.close()

    def frame_bytes(self, i: int) -> bytes:
        """The i-th frame as it lies on disk, a PNG; raises InputError when it cannot be read."""
        try:
            return read_picture(self._frames[i])
        except OSError as error:
            raise InputError(
                f"the frame '{self._frames[i]}' cannot be read ({error}): copy the sequence again"
            ) from error

    def frame(self, i: int) -> np.ndarray:
        """The i-th frame (H, W, 3) uint8 RGB; raises InputError when it is damaged or absurdly large."""
        message = SimpleNamespace(format="png", data=self.frame_bytes(i))
        try:
            return compressed_array(message)
        except InputError as error:
            raise InputError(f"the frame '{self._frames[i]}' is no picture that is read: {error}") from None


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
