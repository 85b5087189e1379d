"""Sequences in the directory layout of the DSEC data set (https://dsec.ifi.uzh.ch)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import cv2

from crossspec_ros.errors import InputError
from crossspec_ros.events.camera_images import compressed_array
from crossspec_ros.events.cdr import RecordedMessage, compressed_image
from crossspec_ros.recordings.hdf5 import open_streams
from crossspec_ros.recordings.image_folder import FolderImages
from crossspec_ros.recordings.recording import DSEC_EVENTS
from crossspec_ros.recordings.source import SourceRecording

EVENTS_FILE = DSEC_EVENTS
_SENSOR = (640, 480)
"""(width, height) of DSEC's event cameras, where a file does not state it."""
FRAMES_FOLDER = "images/left/rectified"
_DISTORTED_FOLDER = "images/left/distorted"
"""Frames of dsec-det, which are in the view of the event camera."""
FRAME_STAMPS_FILE = "images/timestamps.txt"


def open_dsec(path: str, jpeg_quality: int) -> DsecRecording:
    """Entry point of the reader process; raises InputError as `DsecRecording` does."""
    return DsecRecording(Path(path), jpeg_quality)


class DsecRecording(SourceRecording):
    """The left cameras of a DSEC sequence as a Recording, on ROS time = DSEC time.

    The frames stay PNG files, or become JPEGs of `jpeg_quality` (0-100), which are a tenth of the size.
    Raises InputError when the sequence is damaged, or when its frames and their times differ in number.
    """

    def __init__(self, path: Path, jpeg_quality: int | None = None) -> None:
        folders = (path / FRAMES_FOLDER, path / _DISTORTED_FOLDER)
        folder = next((folder for folder in folders if any(folder.glob("*.png"))), None)
        frames = _Frames(folder, jpeg_quality) if folder else None
        events, _ = open_streams(path / EVENTS_FILE, usual_size=_SENSOR)
        super().__init__(path / EVENTS_FILE, events, frames)
        self.format = "DSEC sequence"


class _Frames(FolderImages):
    """The frames of a sequence as an ImageSource."""

    def __init__(self, folder: Path, jpeg_quality: int | None) -> None:
        super().__init__(folder)
        self._jpeg_quality = jpeg_quality

    def _message(self, stamp_ns: int, path: Path) -> RecordedMessage:
        message = super()._message(stamp_ns, path)
        if self._jpeg_quality is None:
            return message
        try:
            pixels = compressed_array(SimpleNamespace(format="png", data=path.read_bytes()))
        except InputError as error:
            raise OSError(str(error)) from error
        options = [cv2.IMWRITE_JPEG_QUALITY, self._jpeg_quality]
        jpeg = cv2.imencode(".jpeg", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), options)[1].tobytes()
        return message._replace(data=compressed_image(stamp_ns, jpeg, "jpeg"))
