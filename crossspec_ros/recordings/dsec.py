"""Sequences in the directory layout of the DSEC data set (https://dsec.ifi.uzh.ch)."""

from __future__ import annotations

from pathlib import Path

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


class DsecRecording(SourceRecording):
    """The left cameras of a DSEC sequence as a Recording, on ROS time = DSEC time.

    Raises InputError when the sequence is damaged, or when its frames and their times differ in number.
    """

    def __init__(self, path: Path) -> None:
        folders = (path / FRAMES_FOLDER, path / _DISTORTED_FOLDER)
        folder = next((folder for folder in folders if any(folder.glob("*.png"))), None)
        frames = FolderImages(folder) if folder else None
        events, _ = open_streams(path / EVENTS_FILE, usual_size=_SENSOR)
        super().__init__(path / EVENTS_FILE, events, frames)
        self.format = "DSEC sequence"
