"""One front door to recordings: whatever the format, the same messages come out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from crossspec_ros.errors import InputError
from crossspec_ros.events.messages import RecordedMessage


class Recording(Protocol):
    """A recorded event stream, with an image stream or without."""

    event_topic: str
    event_type: str
    image_topic: str | None
    image_type: str | None
    start_ns: int
    """Earliest stamp of any message, ROS time."""
    end_ns: int
    """Latest stamp of any message."""

    def messages(self) -> Iterator[RecordedMessage]:
        """Both streams from the start, merged by stamp; raises InputError where the file is damaged."""

    def close(self) -> None:
        """Let go of the files."""


FORMATS = "a DSEC sequence, a rosbag2, or an .aedat4, .npz or .npy file"


def open_recording(path: Path) -> Recording:
    """Open a recording of any of `FORMATS`; a rosbag2 may be a directory or a single file.

    Raises InputError when `path` is none of these, is damaged, or has no event stream.
    """
    from crossspec_ros.events.dv import AedatRecording
    from crossspec_ros.recordings.bag import BagRecording, is_bag
    from crossspec_ros.recordings.dsec import EVENTS_FILE, is_dsec
    from crossspec_ros.recordings.dsec_recording import DsecRecording
    from crossspec_ros.recordings.npy import read_npy
    from crossspec_ros.recordings.npz import read_npz
    from crossspec_ros.recordings.source import SourceRecording

    if not path.exists():
        raise InputError(f"the recording '{path}' does not exist: give {FORMATS}")
    if is_bag(path):
        return BagRecording(path)
    if is_dsec(path):
        return DsecRecording(path)
    if path.suffix == ".aedat4":
        return AedatRecording(path)
    if path.suffix == ".npy":
        return SourceRecording(path, read_npy(path))
    if path.suffix == ".npz":
        return SourceRecording(path, read_npz(path))
    stored = sorted([*path.glob("*.db3"), *path.glob("*.mcap")]) if path.is_dir() else []
    if stored:
        raise InputError(
            f"the bag '{path}' has no metadata.yaml, as when its recorder was killed: give '{stored[0]}'"
        )
    raise InputError(
        f"'{path}' is no recording: give {FORMATS} (a sequence is a directory with {EVENTS_FILE}, a bag "
        f"one with metadata.yaml, or an .mcap or .db3 file)"
    )
