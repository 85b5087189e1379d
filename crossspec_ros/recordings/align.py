"""Events and frames of a DSEC sequence brought into one view, that of its rectified left event camera.

The two cameras lie side by side and differ in lens and resolution. DSEC's `rectify_map` takes the lens out of
the events; the frames are rectified already, and are turned into the event camera's view as if all they show
were infinitely far away, which leaves a parallax of a few pixels on near things.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import cv2
import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.recordings.hdf5_file import Hdf5File
from crossspec_ros.yaml_files import read_yaml

RECTIFY_MAP_FILE = "events/left/rectify_map.h5"
CALIBRATION_FILE = "calibration/cam_to_cam.yaml"


class Alignment:
    """What maps events and frames of the sequence in `path` with an event camera of `size` (width, height).

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
