"""A DSEC sequence as the messages that live cameras would have published."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np

from crossspec_ros.events.dsec import DsecSequence
from crossspec_ros.events.evt3_encoder import encode_evt3, encode_time
from crossspec_ros.events.messages import (
    COMPRESSED_IMAGE,
    EVENT_PACKET,
    RecordedMessage,
    compressed_image,
    event_packet,
)

_PACKET_US = 10_000
# Read at once, so that a chunk of the file is unpacked for many packets.
_BLOCK_US = 20 * _PACKET_US


class DsecRecording:
    """A DSEC directory as a Recording: evt3 packets of 10 ms and compressed images, on ROS time = DSEC time.

    A packet is stamped with its first event's time. Frames stay the PNGs they are, which costs nothing, or
    become JPEGs of `jpeg_quality` (0-100), which takes a tenth of the room. Raises InputError when the
    sequence is damaged.
    """

    event_topic = "/event_camera/events"
    event_type = EVENT_PACKET

    def __init__(self, path: Path, jpeg_quality: int | None = None) -> None:
        self._sequence = DsecSequence(path)
        self._jpeg_quality = jpeg_quality
        stamps = self._sequence.frame_stamps_ns
        self.image_topic = "/camera/image_raw/compressed" if len(stamps) else None
        self.image_type = COMPRESSED_IMAGE if len(stamps) else None
        self.start_ns = min([self._sequence.t_start_us * 1000, *stamps[:1].tolist()])
        self.end_ns = max([self._sequence.t_end_us * 1000, *stamps[-1:].tolist()])

    def close(self) -> None:
        self._sequence.close()

    def messages(self) -> Iterator[RecordedMessage]:
        return heapq.merge(self._packets(), self._images(), key=lambda message: message.stamp_ns)

    def _packets(self) -> Iterator[RecordedMessage]:
        sequence, seq = self._sequence, 0
        size = (sequence.width, sequence.height)
        for block_us in range(sequence.t_start_us, sequence.t_end_us + 1, _BLOCK_US):
            block = sequence.events(block_us, block_us + _BLOCK_US)
            starts = np.arange(block_us, min(block_us + _BLOCK_US, sequence.t_end_us + 1), _PACKET_US)
            cuts = [*np.searchsorted(block.t, starts).tolist(), len(block)]
            for start_us, low, high in zip(starts.tolist(), cuts, cuts[1:], strict=False):
                # Without events a packet still carries the time: a still sensor's clock goes on.
                first_us = int(block.t[low]) if high > low else start_us
                payload = encode_evt3(block[low:high]) if high > low else encode_time(start_us)
                data = event_packet(first_us * 1000, payload, "evt3", size, seq)
                yield RecordedMessage(first_us * 1000, "events", EVENT_PACKET, data)
                seq += 1

    def _images(self) -> Iterator[RecordedMessage]:
        for i, stamp in enumerate(self._sequence.frame_stamps_ns.tolist()):
            picture, name = self._sequence.frame_bytes(i), "png"
            if self._jpeg_quality is not None:
                bgr = cv2.cvtColor(self._sequence.frame(i), cv2.COLOR_RGB2BGR)
                encoded = cv2.imencode(".jpg", bgr, (cv2.IMWRITE_JPEG_QUALITY, self._jpeg_quality))[1]
                picture, name = encoded.tobytes(), "jpeg"
            yield RecordedMessage(stamp, "image", COMPRESSED_IMAGE, compressed_image(stamp, picture, name))
