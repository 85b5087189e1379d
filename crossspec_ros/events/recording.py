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


def open_recording(path: Path) -> Recording:
    """Open a DSEC sequence directory or a rosbag2 (directory or single file).

    Raises InputError when `path` is none of these, is damaged, or has no event stream.
    """
    from crossspec_ros.events.bag import BagRecording, is_bag
    from crossspec_ros.events.dsec import EVENTS_FILE, is_dsec
    from crossspec_ros.events.dsec_recording import DsecRecording

    if not path.exists():
        raise InputError(f"the recording '{path}' does not exist: give a DSEC sequence or a rosbag2")
    if path.suffix == ".npy":
        raise InputError(
            f"'{path}' is a pickle, which can run any code when it is opened: convert it to a DSEC sequence "
            f"or a rosbag2 where you trust it"
        )
    if is_bag(path):
        return BagRecording(path)
    if is_dsec(path):
        return DsecRecording(path)
    raise InputError(
        f"'{path}' is no recording: give a DSEC sequence (a directory with {EVENTS_FILE}) or a rosbag2 (a "
        f"directory with metadata.yaml, or an .mcap or .db3 file)"
    )
