"""`.aedat4` files, through dv-processing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.aedat4 import has_table, without_table
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.isolated import IsolationError, bound_memory, isolated
from crossspec_ros.events.messages import EVENT_PACKET, IMAGE, RecordedMessage, image
from crossspec_ros.events.packets import MAX_US, PacketCutter
from crossspec_ros.events.stamps import merged

if TYPE_CHECKING:
    import dv_processing as dv

IMAGE_TOPIC = "/camera/image_raw"
TIMEOUT_S = 30.0
_MOST_EVENTS, _EVENTS_A_BYTE = 2_000_000, 6
"""So many may be in any file, and in a larger one so many a byte; equal ones pack to nearly nothing."""
_GROWTH = 256 << 20
"""Bytes that the reader of a small file may take; it keeps a table of all packets of a large one."""
_MOST_FRAME_BYTES = 16 << 20
"""Of one, of which reader and parent have eight copies and more; 2448x2048 pixels in colour have 15 MB."""
_MOST_FRAMES_BYTES, _FRAMES_TIMES = 2 << 30, 100
"""So many may come out of any file, and of a larger one so many times its own; black ones pack to nothing."""
_ENCODINGS = {1: "mono8", 3: "bgr8", 4: "bgra8"}


class AedatRecording:
    """An `.aedat4` file as a Recording: evt3 packets and raw images, on ROS time = the camera's time.

    Of one that is cut its whole packets play. Raises InputError when the file is damaged or has no events.
    """

    format = "aedat4"
    remarks: Sequence[str] = ()
    event_topic = "/event_camera/events"
    event_type = EVENT_PACKET

    def __init__(self, path: Path) -> None:
        self._path = self._file = path
        self.losses: list[str] = []
        self._stack = ExitStack()
        try:
            with self._name_damage():
                start_us, end_us, has_frames = self._open()
        except BaseException:
            self.close()
            raise
        self.start_ns, self.end_ns = start_us * 1000, end_us * 1000
        self.image_topic = IMAGE_TOPIC if has_frames else None
        self.image_type = IMAGE if has_frames else None

    def close(self) -> None:
        """Each pass over the messages opens and closes the file; only a repaired copy stays until now."""
        self._stack.close()

    def messages(self) -> Iterator[RecordedMessage]:
        with self._name_damage():
            yield from isolated(_read, self._file, timeout_s=TIMEOUT_S)

    def _open(self) -> tuple[int, int, bool]:
        """First and last time in us, and whether there are frames."""
        try:
            found, is_whole = _ask(self._file), has_table(self._path)
        except (RuntimeError, IndexError) as error:
            # What made its reader hang would do so again.
            if isinstance(error, IsolationError):
                raise
            folder = Path(self._stack.enter_context(TemporaryDirectory(prefix="crossspec-")))
            try:
                # Its packets are found without the table that a cut file lacks.
                self._file, is_whole = without_table(self._path, folder / self._path.name), False
                found = _ask(self._file)
            except (RuntimeError, IndexError, ValueError):
                raise error from None
        if not is_whole:
            self.losses.append(
                f"'{self._path}' is cut, or its recorder was killed: the packets that it still has were read"
            )
        return found

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


def _ask(path: Path) -> tuple[int, int, bool]:
    with closing(isolated(_describe, path, timeout_s=TIMEOUT_S)) as answer:
        return next(answer)


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
    """What dv-processing says of an error, without where in its code."""
    text = str(error).partition("\nStacktrace")[0].partition(" [system:")[0].strip()
    return (text.splitlines() or [type(error).__name__])[-1].rstrip(".")


def _describe(path: Path) -> Iterator[tuple[int, int, bool]]:
    """First and last time in us, and whether there are frames."""
    recording = _open(path)
    if not recording.isEventStreamAvailable() or recording.getNextEventBatch() is None:
        raise InputError(f"'{path}' has no events: record it with the event stream switched on")
    has_frames = recording.isFrameStreamAvailable() and recording.getNextFrame() is not None
    yield (*recording.getTimeRange(), has_frames)


def _read(path: Path) -> Iterator[RecordedMessage]:
    recording = _open(path)
    return merged(_packets(recording, path), _frames(recording, path))


def _open(path: Path) -> dv.io.MonoCameraRecording:
    import dv_processing as dv

    bound_memory(_GROWTH + path.stat().st_size // 4)
    return dv.io.MonoCameraRecording(str(path))


def _packets(recording: dv.io.MonoCameraRecording, path: Path) -> Iterator[RecordedMessage]:
    size, cutter = recording.getEventResolution(), PacketCutter(path)
    left = most = max(_MOST_EVENTS, _EVENTS_A_BYTE * path.stat().st_size)
    while (store := recording.getNextEventBatch()) is not None:
        left -= len(store)
        if left < 0:
            raise InputError(
                f"'{path}' has more than {most} events, as no recording of its size does: check where it "
                f"comes from, and record it again"
            )
        yield from cutter.cut(batch_of_store(store, size))


def _frames(recording: dv.io.MonoCameraRecording, path: Path) -> Iterator[RecordedMessage]:
    left = most = max(_MOST_FRAMES_BYTES, _FRAMES_TIMES * path.stat().st_size)
    while recording.isFrameStreamAvailable() and (frame := recording.getNextFrame()) is not None:
        size = _pixels(frame).nbytes
        if size > _MOST_FRAME_BYTES:
            raise InputError(
                f"'{path}' has a frame of {size >> 20} MB, and up to {_MOST_FRAME_BYTES >> 20} MB are read: "
                f"record smaller ones"
            )
        left -= size
        if left < 0:
            raise InputError(
                f"'{path}' unpacks to more than {most >> 20} MB of frames, as no recording of its size does: "
                f"check where it comes from, and record it again"
            )
        yield frame_message(frame)
