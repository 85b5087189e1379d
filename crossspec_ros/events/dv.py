"""`.aedat4` files, through dv-processing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.aedat4 import cameras, has_table, without_table
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import EVENT_PACKET, IMAGE, RecordedMessage, image
from crossspec_ros.events.packets import MAX_US, PacketCutter
from crossspec_ros.events.stamps import merged

if TYPE_CHECKING:
    import dv_processing as dv

IMAGE_TOPIC = "/camera/image_raw"
_ENCODINGS = {1: "mono8", 3: "bgr8", 4: "bgra8"}


class AedatRecording:
    """An `.aedat4` file as a Recording: evt3 packets and raw images, on ROS time = the camera's time.

    Of one that is cut its whole packets play. dv-processing hangs and crashes on damaged files, so that they
    are only to be read in a child (sandbox.py). Raises InputError for damage and where there are no events.
    """

    format = "aedat4"
    event_topic = "/event_camera/events"
    event_type = EVENT_PACKET

    def __init__(self, path: Path) -> None:
        self._path = self._file = path
        self.losses: list[str] = []
        self.remarks: list[str] = []
        self._stack = ExitStack()
        try:
            with self._name_damage():
                self.start_ns, self.end_ns, has_frames = self._open()
        except BaseException:
            self.close()
            raise
        self.image_topic = IMAGE_TOPIC if has_frames else None
        self.image_type = IMAGE if has_frames else None

    def close(self) -> None:
        """Each pass over the messages opens and closes the file; only a repaired copy stays until now."""
        self._stack.close()

    def messages(self) -> Iterator[RecordedMessage]:
        with self._name_damage():
            recording = _open(self._file)
            yield from merged(_packets(recording, self._path), _frames(recording))

    def _open(self) -> tuple[int, int, bool]:
        """First and last time in ns, and whether there are frames."""
        try:
            found, is_whole = self._describe(), has_table(self._path)
        except (RuntimeError, IndexError) as error:
            folder = Path(self._stack.enter_context(TemporaryDirectory()))
            try:
                # Its packets are found without the table that a cut file lacks.
                self._file, is_whole = without_table(self._path, folder / self._path.name), False
                found = self._describe()
            except (RuntimeError, IndexError, ValueError):
                raise error from None
        if not is_whole:
            self.losses.append(
                f"'{self._path}' is cut, or its recorder was killed: the packets that it still has were read"
            )
        return found

    def _describe(self) -> tuple[int, int, bool]:
        recording = _open(self._file)
        if not recording.isEventStreamAvailable() or recording.getNextEventBatch() is None:
            raise InputError(f"'{self._path}' has no events: record it with the event stream switched on")
        played = recording.getCameraName()
        if others := [name for name in cameras(self._file) if name != played]:
            self.remarks = [
                f"'{self._path}' has streams of {', '.join(others)} as well, but those of {played} play: "
                f"copy the others to a file of their own with dv-processing's MonoCameraWriter"
            ]
        has_frames = recording.isFrameStreamAvailable() and recording.getNextFrame() is not None
        start_us, end_us = recording.getTimeRange()
        return start_us * 1000, end_us * 1000, has_frames

    @contextmanager
    def _name_damage(self) -> Iterator[None]:
        try:
            yield
        except InputError:
            raise
        # dv-processing promises no exception for a damaged file; RuntimeError and IndexError were seen.
        except (RuntimeError, IndexError, ValueError, OSError) as error:
            raise InputError(
                f"'{self._path}' is damaged or no .aedat4 file ({dv_message(error)}): copy or record it again"
            ) from error


def open_aedat(path: str) -> AedatRecording:
    """A recording by its path's text, as a child gets it."""
    return AedatRecording(Path(path))


def batch_of_store(store: dv.EventStore, size: tuple[int, int]) -> EventBatch:
    """dv-processing's events of a sensor of `size` (width, height)."""
    events = store.numpy()
    return EventBatch(
        events["timestamp"].astype(np.int64),
        events["x"].astype(np.uint16),
        events["y"].astype(np.uint16),
        events["polarity"].astype(np.uint8),
        *size,
    )


def frame_message(frame: dv.Frame) -> RecordedMessage:
    """dv-processing's frame as an Image; raises ValueError where it cannot be one."""
    pixels, stamp_ns = _pixels(frame), frame.timestamp * 1000
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    if channels not in _ENCODINGS or pixels.dtype != np.uint8 or not pixels.size:
        raise ValueError(f"a frame has {pixels.size} values of {pixels.dtype} in {channels} channels")
    if not 0 <= frame.timestamp < MAX_US:
        raise ValueError(f"a frame is of {frame.timestamp} us, and ROS time goes from 0 to the year 2038")
    return RecordedMessage(stamp_ns, "image", IMAGE, image(stamp_ns, pixels, _ENCODINGS[channels]))


def _pixels(frame: dv.Frame) -> np.ndarray:
    try:
        return frame.image
    # Its way to say that there is no memory for them.
    except TypeError:
        raise MemoryError from None


def dv_message(error: Exception) -> str:
    """Message of an error of dv-processing, without the place in its code."""
    text = str(error).partition("\nStacktrace")[0].partition(" [system:")[0].strip()
    return (text.splitlines() or [type(error).__name__])[-1].rstrip(".")


def _open(path: Path) -> dv.io.MonoCameraRecording:
    import dv_processing as dv

    return dv.io.MonoCameraRecording(str(path))


def _packets(recording: dv.io.MonoCameraRecording, path: Path) -> Iterator[RecordedMessage]:
    size, cutter = recording.getEventResolution(), PacketCutter(path)
    while (store := recording.getNextEventBatch()) is not None:
        yield from cutter.cut(batch_of_store(store, size))


def _frames(recording: dv.io.MonoCameraRecording) -> Iterator[RecordedMessage]:
    while recording.isFrameStreamAvailable() and (frame := recording.getNextFrame()) is not None:
        yield frame_message(frame)
