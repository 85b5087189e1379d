"""A DSEC sequence as the messages that live cameras would have published."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import cv2

from crossspec_ros.errors import InputError
from crossspec_ros.events.cdr import COMPRESSED_IMAGE, EVENT_PACKET, RecordedMessage, compressed_image
from crossspec_ros.events.stamps import merged
from crossspec_ros.recordings.align import Alignment
from crossspec_ros.recordings.dsec import DISTORTED_FOLDER, EVENTS_FILE, FRAMES_FOLDER, DsecSequence
from crossspec_ros.recordings.source import first_sound_ns, packets


def open_dsec(path: str, jpeg_quality: int, aligned: bool) -> DsecRecording:
    """A sequence by its path's text, as a child gets it; raises InputError as `DsecRecording` does."""
    return DsecRecording(Path(path), jpeg_quality, aligned)


class DsecRecording:
    """A DSEC directory as a Recording: evt3 packets of 10 ms and compressed images, on ROS time = DSEC time.

    A packet is stamped with its first event's time. Frames stay the PNGs they are, which costs nothing, or
    become JPEGs of `jpeg_quality` (0-100), which takes a tenth of the room. `aligned` brings events and
    frames into one view, as align.py says. Raises InputError when the sequence or its calibration is damaged.
    """

    format = "DSEC sequence"
    event_topic: str | None = "/event_camera/events"
    event_type = EVENT_PACKET

    def __init__(self, path: Path, jpeg_quality: int | None = None, aligned: bool = False) -> None:
        self.losses: list[str] = []
        self._sequence = DsecSequence(path)
        try:
            size = (self._sequence.events.width, self._sequence.events.height)
            is_distorted = self._sequence.frames_folder == DISTORTED_FOLDER
            if aligned and is_distorted:
                raise InputError(
                    f"the frames of '{path}' are in {DISTORTED_FOLDER} and so in the events' view already: "
                    f"leave out --aligned, or add {FRAMES_FOLDER}"
                )
            self._alignment = Alignment(path, size) if aligned else None
        except InputError:
            self.close()
            raise
        self._jpeg_quality = jpeg_quality
        stamps = self._sequence.frame_stamps_ns
        self.remarks: Sequence[str] = (
            [f"the frames are those of {DISTORTED_FOLDER}, for there are none in {FRAMES_FOLDER}"]
            if is_distorted
            else []
        )
        self.image_topic = "/camera/image_raw/compressed" if len(stamps) else None
        self.image_type = COMPRESSED_IMAGE if len(stamps) else None
        start_ns = first_sound_ns(self._packets(), self._sequence.events)
        self.start_ns = min([start_ns, *stamps[:1].tolist()])
        self.end_ns = max([self._sequence.events.end_us * 1000, *stamps[-1:].tolist()])

    def close(self) -> None:
        self._sequence.close()

    def messages(self) -> Iterator[RecordedMessage]:
        return merged(self._packets(), self._images())

    def _packets(self) -> Iterator[RecordedMessage]:
        batches = self._sequence.events.batches()
        self.losses.clear()
        try:
            yield from packets(
                self._sequence.path / EVENTS_FILE,
                map(self._alignment.events, batches) if self._alignment else batches,
            )
        except InputError as error:
            self.losses.append(str(error))

    def _images(self) -> Iterator[RecordedMessage]:
        suffix = "png" if self._jpeg_quality is None else "jpeg"
        options = [] if self._jpeg_quality is None else [cv2.IMWRITE_JPEG_QUALITY, self._jpeg_quality]
        for i, stamp in enumerate(self._sequence.frame_stamps_ns.tolist()):
            if self._jpeg_quality is None and self._alignment is None:
                picture = self._sequence.frame_bytes(i)
            else:
                frame = self._sequence.frame(i)
                pixels = self._alignment.frame(frame) if self._alignment else frame
                bgr = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
                picture = cv2.imencode(f".{suffix}", bgr, options)[1].tobytes()
            yield RecordedMessage(stamp, "image", COMPRESSED_IMAGE, compressed_image(stamp, picture, suffix))
