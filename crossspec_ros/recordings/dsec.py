"""Sequences in the directory layout of the DSEC data set (https://dsec.ifi.uzh.ch)."""

from __future__ import annotations

from pathlib import Path

from crossspec_ros.recordings.hdf5 import Hdf5Recording
from crossspec_ros.recordings.image_folder import FolderImages

_SENSOR = (640, 480)
"""(width, height) of DSEC's event cameras, where a file does not state it."""
_FRAMES = ("images/left/rectified", "images/left/distorted")
"""Folders of frames; those of dsec-det are distorted, in the view of the event camera."""


class DsecRecording(Hdf5Recording):
    """The left cameras of a DSEC sequence with this events.h5, on ROS time = DSEC time."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, usual_size=_SENSOR)
        self.format = "DSEC sequence"
        folders = (path.parents[2] / name for name in _FRAMES)
        if folder := next((folder for folder in folders if any(folder.glob("*.png"))), None):
            images = FolderImages(folder)
            self.use_images(images.messages, images.type)
