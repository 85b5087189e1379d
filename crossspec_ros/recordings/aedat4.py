"""`.aedat4` files of iniVation's cameras, through the library aedat."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import aedat
import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import IMAGE, RecordedMessage, image
from crossspec_ros.events.packets import MAX_US
from crossspec_ros.recordings.source import SourceRecording

_ENCODINGS = {"L": "mono8", "I;16": "mono16", "RGB": "rgb8", "RGBA": "rgba8"}


class Aedat4Recording(SourceRecording):
    """The first event stream and the first frame stream of a file, on ROS time = the camera's time.

    All packets before a damaged one play. Raises InputError if the file has no events.
    """

    format = "aedat4"

    def __init__(self, path: Path) -> None:
        streams = aedat.Decoder(path).id_to_stream()
        events, frames = (
            [stream for stream in sorted(streams) if streams[stream]["type"] == kind]
            for kind in ("events", "frame")
        )
        if not events:
            raise InputError(f"'{path}' has no events: record it with the event stream switched on")
        super().__init__(path)
        self._stream, self._size = events[0], (streams[events[0]]["width"], streams[events[0]]["height"])
        if frames:
            self.use_images(partial(self._frames, frames[0]))
        if len(events) > 1:
            self.remarks.append(
                f"'{path}' has {len(events)} event streams: the first one plays, copy others out in DV"
            )

    def batches(self) -> Iterator[EventBatch]:
        for packet in _packets(self._path, self._stream):
            events = packet["events"]
            t, on = events["t"].astype(np.int64), events["on"].view(np.uint8)
            yield EventBatch(t, events["x"], events["y"], on, *self._size)

    def _frames(self, stream: int) -> Iterator[RecordedMessage]:
        """Yield the frames of a stream; the stamp of a frame is the begin of its exposure."""
        for packet in _packets(self._path, stream):
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


def _packets(path: Path, stream: int) -> Iterator[dict[str, Any]]:
    """Yield the packets of a stream; a decoder for both would keep what plays later in memory."""
    return (packet for packet in aedat.Decoder(path) if packet["stream_id"] == stream)
