"""`.aedat4` files of iniVation's cameras, through the library aedat."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aedat
import numpy as np

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import IMAGE, RecordedMessage, image
from crossspec_ros.events.packets import MAX_US
from crossspec_ros.recordings.source import SourceRecording

_ENCODINGS = {"L": "mono8", "I;16": "mono16", "RGB": "rgb8", "RGBA": "rgba8"}

Packet = dict[str, Any]


class Aedat4Recording(SourceRecording):
    """The first event stream and the first frame stream of a file, on ROS time = the camera's time.

    All packets before a damaged one play. Raises InputError if the file has no events.
    """

    def __init__(self, path: Path) -> None:
        try:
            streams = aedat.Decoder(path).id_to_stream()
        except RuntimeError as error:
            raise _damaged(path, error) from error
        events, frames = (
            [stream for stream in sorted(streams) if streams[stream]["type"] == kind]
            for kind in ("events", "frame")
        )
        if not events:
            raise InputError(f"'{path}' has no events: record it with the event stream switched on")
        size = streams[events[0]]["width"], streams[events[0]]["height"]
        self._file = path
        self._event_stream = _EventStream(events[0], size)
        self._frame_stream = _FrameStream(frames[0], path) if frames else None
        super().__init__(path, self._event_stream, self._frame_stream)
        if len(events) > 1:
            self.tell(f"'{path}' has {len(events)} event streams: the first one plays, copy others out in DV")

    def _pass(self) -> Iterator[RecordedMessage]:
        # One decoder for each stream: frames that end early would have all events wait in memory.
        self._event_stream.packets = _packets(self._file)
        if self._frame_stream:
            self._frame_stream.packets = _packets(self._file)
        yield from super()._pass()


class _EventStream:
    """The events of a file as an EventSource, from the `packets` of one pass."""

    format = "aedat4"
    packets: Iterator[Packet] = iter(())

    def __init__(self, stream: int, size: tuple[int, int]) -> None:
        self._stream, self._size = stream, size

    def batches(self) -> Iterator[EventBatch]:
        for packet in self.packets:
            if packet["stream_id"] == self._stream:
                events = packet["events"]
                t, on = events["t"].astype(np.int64), events["on"].view(np.uint8)
                yield EventBatch(t, events["x"], events["y"], on, *self._size)

    def close(self) -> None:
        """Do nothing: each pass opens the file."""


class _FrameStream:
    """The frames of a file as an ImageSource; the stamp of a frame is the begin of its exposure."""

    topic = "/camera/image_raw"
    type = IMAGE
    packets: Iterator[Packet] = iter(())

    def __init__(self, stream: int, path: Path) -> None:
        self._stream, self._path = stream, path

    def messages(self) -> Iterator[RecordedMessage]:
        for packet in self.packets:
            if packet["stream_id"] == self._stream:
                frame = packet["frame"]
                t_us, pixels = frame["exposure_begin_t"] or frame["t"], frame["pixels"]
                if not 0 <= t_us < MAX_US:
                    raise InputError(
                        f"'{self._path}' has a frame at {t_us} us, outside ROS time: copy or record it again"
                    )
                encoding = _ENCODINGS[frame["format"]]
                if pixels.dtype == np.uint16:
                    encoding = encoding.replace("8", "16")
                yield RecordedMessage(t_us * 1000, "image", IMAGE, image(t_us * 1000, pixels, encoding))

    def close(self) -> None:
        """Do nothing: each pass opens the file."""


def _packets(path: Path) -> Iterator[Packet]:
    """Yield the packets of a file; raises InputError at the first damaged one."""
    try:
        yield from aedat.Decoder(path)
    except RuntimeError as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: RuntimeError) -> InputError:
    return InputError(f"'{path}' is damaged or no .aedat4 file ({one_line(error)}): copy or record it again")
