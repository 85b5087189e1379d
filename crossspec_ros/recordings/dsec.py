"""Sequences in the directory format of the DSEC data set (https://dsec.ifi.uzh.ch), read and written.

Aligned, events and frames are in one view, that of the rectified left event camera. The two cameras lie side
by side and differ in lens and resolution. DSEC's `rectify_map` takes the lens out of the events; the frames
are rectified already, and are turned into the event camera's view as if all they show were infinitely far
away, which leaves a parallax of a few pixels on near things.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import cv2
import h5py
import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.camera_images import compressed_array
from crossspec_ros.events.cdr import COMPRESSED_IMAGE, RecordedMessage, compressed_image
from crossspec_ros.events.packets import MAX_US
from crossspec_ros.recordings.hdf5 import Hdf5Events
from crossspec_ros.recordings.hdf5_file import Hdf5File
from crossspec_ros.recordings.hdf5_layouts import find_layout
from crossspec_ros.recordings.recording import DSEC_EVENTS
from crossspec_ros.recordings.source import SourceRecording, read_picture, read_times
from crossspec_ros.yaml_files import read_yaml

_SENSOR = (640, 480)
"""Width and height of its event cameras, where a file does not say them."""
EVENTS_FILE = DSEC_EVENTS
FRAMES_FOLDER = "images/left/rectified"
DISTORTED_FOLDER = "images/left/distorted"
"""Frames in the events' view, as dsec-det has them."""
FRAME_STAMPS_FILE = "images/timestamps.txt"
_RIGHT = ("events/right", "images/right")
RECTIFY_MAP_FILE = "events/left/rectify_map.h5"
CALIBRATION_FILE = "calibration/cam_to_cam.yaml"


def open_dsec(path: str, jpeg_quality: int, aligned: bool) -> DsecRecording:
    """A sequence by its path's text, as a child gets it; raises InputError as `DsecRecording` does."""
    return DsecRecording(Path(path), jpeg_quality, aligned)


class DsecRecording(SourceRecording):
    """A DSEC directory as a Recording: evt3 packets of 10 ms and compressed images, on ROS time = DSEC time.

    Frames stay the PNGs they are, which costs nothing, or become JPEGs of `jpeg_quality` (0-100), which takes
    a tenth of the room. `aligned` brings events and frames into one view. Raises InputError when the sequence
    or its calibration is damaged.
    """

    def __init__(self, path: Path, jpeg_quality: int | None = None, aligned: bool = False) -> None:
        sequence = DsecSequence(path)
        try:
            is_distorted = sequence.frames_folder == DISTORTED_FOLDER
            if aligned and is_distorted:
                raise InputError(
                    f"the frames of '{path}' are in {DISTORTED_FOLDER} and so in the events' view already: "
                    f"leave out --aligned, or add {FRAMES_FOLDER}"
                )
            size = (sequence.events.width, sequence.events.height)
            alignment = Alignment(path, size) if aligned else None
            frames = _Frames(sequence, jpeg_quality, alignment) if len(sequence.frame_stamps_ns) else None
            events = _AlignedEvents(sequence.events, alignment) if alignment else sequence.events
            super().__init__(path / EVENTS_FILE, events, frames)
        except InputError:
            sequence.close()
            raise
        self.format = "DSEC sequence"
        if others := [folder for folder in _RIGHT if (path / folder).is_dir()]:
            self.tell(
                f"{' and '.join(others)} of '{path}' are not played, for those of the left are: give the "
                f"events.h5 of the right by itself, with --images"
            )
        if is_distorted:
            self.tell(f"the frames are those of {DISTORTED_FOLDER}, for there are none in {FRAMES_FOLDER}")
        elif frames and any((path / DISTORTED_FOLDER).glob("*.png")):
            self.tell(f"{DISTORTED_FOLDER} holds frames too, beside {FRAMES_FOLDER}: they play with --images")


class _Frames:
    """The frames of a sequence as an ImageSource."""

    topic = "/camera/image_raw/compressed"
    type = COMPRESSED_IMAGE

    def __init__(self, sequence: DsecSequence, jpeg_quality: int | None, alignment: Alignment | None) -> None:
        self._sequence, self._alignment, self._jpeg_quality = sequence, alignment, jpeg_quality
        self._stamps_ns = sequence.frame_stamps_ns.tolist()
        self.start_ns, self.end_ns = self._stamps_ns[0], self._stamps_ns[-1]

    def messages(self) -> Iterator[RecordedMessage]:
        suffix = "png" if self._jpeg_quality is None else "jpeg"
        missing: list[InputError] = []
        for i, stamp_ns in enumerate(self._stamps_ns):
            try:
                picture = compressed_image(stamp_ns, self._picture(i, suffix), suffix)
            except InputError as error:
                missing.append(error)
            else:
                yield RecordedMessage(stamp_ns, "image", COMPRESSED_IMAGE, picture)
        if missing:
            raise InputError(f"{len(missing)} of {len(self._stamps_ns)} frames do not play: {missing[0]}")

    def _picture(self, i: int, suffix: str) -> bytes:
        if self._jpeg_quality is None and self._alignment is None:
            return self._sequence.frame_bytes(i)
        options = [] if self._jpeg_quality is None else [cv2.IMWRITE_JPEG_QUALITY, self._jpeg_quality]
        frame = self._sequence.frame(i)
        pixels = self._alignment.frame(frame) if self._alignment else frame
        bgr = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
        return cv2.imencode(f".{suffix}", bgr, options)[1].tobytes()

    def close(self) -> None:
        """The events close the file."""


class _AlignedEvents:
    """The events of a sequence in the rectified view, as an EventSource."""

    def __init__(self, events: Hdf5Events, alignment: Alignment) -> None:
        self._events, self._alignment = events, alignment
        self.format, self.start_us, self.end_us = events.format, events.start_us, events.end_us

    def batches(self) -> Iterator[EventBatch]:
        return map(self._alignment.events, self._events.batches())

    def close(self) -> None:
        self._events.close()


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


class Alignment:
    """Mapping of events and frames of the sequence in `path`, of an event camera of `size` (width, height).

    Raises InputError where its rectify map or its calibration is missing or damaged.
    """

    def __init__(self, path: Path, size: tuple[int, int]) -> None:
        self._path = path
        self._width, self._height = size
        self._x, self._y = _read_rectify_map(path / RECTIFY_MAP_FILE, size)
        try:
            self._homography = homography(read_yaml(path / CALIBRATION_FILE))
        # What a calibration of another structure makes of each of these steps.
        except (OSError, ValueError, TypeError, LookupError, ArithmeticError, np.linalg.LinAlgError) as error:
            detail = " ".join(f"{type(error).__name__}: {error}".split())
            raise InputError(
                f"the calibration '{path / CALIBRATION_FILE}' cannot be used ({detail}): copy it from the "
                f"sequence's calibration archive, or leave the alignment out"
            ) from error

    def events(self, batch: EventBatch) -> EventBatch:
        """The events at the nearest pixels of the rectified view; those outside it are left out.

        Raises InputError for events that are not on the sensor.
        """
        try:
            x, y = self._x[batch.y, batch.x], self._y[batch.y, batch.x]
        except IndexError as error:
            raise InputError(
                f"the sequence '{self._path}' has events outside its sensor of {self._width}x{self._height}: "
                f"copy it again"
            ) from error
        inside = (x >= 0) & (x < self._width) & (y >= 0) & (y < self._height)
        return EventBatch(
            batch.t[inside],
            x[inside].astype(np.uint16),
            y[inside].astype(np.uint16),
            batch.p[inside],
            self._width,
            self._height,
        )

    def frame(self, pixels: np.ndarray) -> np.ndarray:
        """A frame (H, W, 3) uint8 in the event camera's view (height, width, 3), black where it ends."""
        return cv2.warpPerspective(pixels, self._homography, (self._width, self._height))


def homography(calibration: dict) -> np.ndarray:
    """(3, 3) from pixels of the rectified left frame camera to pixels of the rectified left event camera.

    `calibration` is `cam_to_cam.yaml`: camera 0 is the event camera, 1 the frame camera, `T_10` goes from 0
    to 1, `R_rect` from a camera as built to it rectified. A direction seen by the frame camera goes back to
    camera 1 as built, on to camera 0 as built, and to camera 0 rectified. Raises KeyError, TypeError,
    ValueError or LinAlgError for what is none.
    """
    extrinsics = calibration["extrinsics"]
    rotations = [np.array(extrinsics[name], float)[:3, :3] for name in ("R_rect0", "T_10", "R_rect1")]
    if any(rotation.shape != (3, 3) or not np.isfinite(rotation).all() for rotation in rotations):
        raise ValueError("a rotation is none")
    rectify_0, to_1, rectify_1 = rotations
    camera_0, camera_1 = (_camera_matrix(calibration, name) for name in ("camRect0", "camRect1"))
    return camera_0 @ rectify_0 @ to_1.T @ rectify_1.T @ np.linalg.inv(camera_1)


def _camera_matrix(calibration: dict, camera: str) -> np.ndarray:
    fx, fy, cx, cy = (float(value) for value in calibration["intrinsics"][camera]["camera_matrix"])
    return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])


def _read_rectify_map(path: Path, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The rectified column and row, each (height, width) int32, of each of the sensor's pixels."""
    try:
        with closing(Hdf5File(path)) as file:
            stored = file.dataset("rectify_map")
            if stored.shape != (size[1], size[0], 2) or stored.dtype.kind != "f":
                raise ValueError(f"its map is of shape {stored.shape} and type {stored.dtype!s:.80}")
            with file.naming_damage():
                rectified = stored[:]
    # Also an InputError.
    except ValueError as error:
        raise InputError(
            f"the rectify map '{path}' cannot be used ({error}): copy it from the sequence's archive of "
            f"events, or leave the alignment out"
        ) from error
    # Not a number is nowhere.
    nearest = np.nan_to_num(np.rint(rectified), nan=-1.0).clip(-1, max(size)).astype(np.int32)
    return nearest[..., 0], nearest[..., 1]


def write_events_h5(path: Path, batch: EventBatch, t_offset: int) -> None:
    """Write `events.h5` in DSEC's layout; `batch.t` is absolute, in order, and not before `t_offset` us.

    Raises ValueError for times that do not fit: the file holds 32 bits of us over `t_offset`.
    """
    t = batch.t - t_offset
    if not len(t) or t[0] < 0 or t[-1] >= 1 << 32 or np.any(t[1:] < t[:-1]):
        raise ValueError("DSEC needs events in order, within 71 minutes from t_offset")
    try:
        import hdf5plugin
    except ImportError as error:
        raise InputError("DSEC files are packed with Blosc: pip install hdf5plugin") from error
    # ms_to_idx[ms] is the first event at or after that millisecond, up to the millisecond of the last event.
    ms_to_index = np.searchsorted(t, np.arange(int(t[-1]) // 1000 + 1) * 1000)
    packed = hdf5plugin.Blosc(cname="zstd", clevel=5, shuffle=hdf5plugin.Blosc.SHUFFLE)
    with h5py.File(path, "w") as file:
        for name, values in (("x", batch.x), ("y", batch.y), ("t", t.astype(np.uint32)), ("p", batch.p)):
            file.create_dataset(f"events/{name}", data=values, compression=packed, chunks=True)
        file.create_dataset("ms_to_idx", data=ms_to_index.astype(np.uint64), compression=packed, chunks=True)
        file.create_dataset("t_offset", data=np.int64(t_offset))
        file.attrs["width"], file.attrs["height"] = batch.width, batch.height
