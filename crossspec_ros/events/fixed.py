"""The encodings of 64 bits an event, `mono` and `libcaer`, by numpy; `mono` is written as well."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import numpy as np

from crossspec_ros.events.batch import EventBatch, drop_outside
from crossspec_ros.events.packed import Payload


class _FixedDecoder:
    fields: ClassVar[np.dtype]
    """Names and types of an event's fields, little-endian."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.damage: Counter[str] = Counter()

    def _events(self, payload: Payload) -> np.ndarray:
        """Return the complete events of a payload, and count a torn one at its end as damage."""
        if len(payload) % self.fields.itemsize:
            self.damage["torn_words"] += 1
        return np.frombuffer(payload, self.fields, len(payload) // self.fields.itemsize)

    def _batch(self, t: np.ndarray, x: np.ndarray, y: np.ndarray, p: np.ndarray) -> EventBatch:
        batch = EventBatch(
            t, x.astype(np.uint16), y.astype(np.uint16), p.astype(np.uint8), self.width, self.height
        )
        return drop_outside(batch, self.damage)


class MonoDecoder(_FixedDecoder):
    """Decodes `mono` packets, as event_camera_codecs does; t = time_base + dt, in integer us."""

    # Bits 0-31 ns over time_base, 32-47 x, 48-62 y, 63 polarity.
    fields = np.dtype([("dt", "<u4"), ("x", "<u2"), ("yp", "<u2")])

    def decode(self, payload: Payload, time_base: int = 0) -> EventBatch:
        events = self._events(payload)
        base_us, base_ns = divmod(time_base, 1000)
        t = (events["dt"].astype(np.int64) + base_ns) // 1000 + base_us
        return self._batch(t, events["x"], events["yp"] & np.uint16(0x7FFF), events["yp"] >> 15)


def encode_mono(batch: EventBatch, time_base: int) -> bytes:
    """Encode a batch, its order kept; its events are less than 4.29 s after `time_base` in ns."""
    times = batch.t * 1000 - time_base
    if len(times) and (times.min() < 0 or times.max() >> 32):
        raise ValueError("the events of a packet are more than 4 s apart")
    events = np.empty(len(batch), MonoDecoder.fields)
    events["dt"], events["x"] = times, batch.x
    events["yp"] = batch.y | batch.p.astype(np.uint16) << 15
    return events.tobytes()


class LibcaerDecoder(_FixedDecoder):
    """Decodes `libcaer` packets; t is time_base plus the event's time, in integer us of the host's clock.

    The driver moves time_base on when the 31-bit time wraps, so a wrap matters only within a packet.
    event_camera_codecs takes every step back for a wrap; here only one by more than half the range is,
    because times go back a little under load.
    """

    # data: bit 0 is set in valid events, bit 1 polarity, bits 2-16 y, 17-31 x; us: 31 bits over time_base.
    fields = np.dtype([("data", "<u4"), ("us", "<i4")])

    def decode(self, payload: Payload, time_base: int = 0) -> EventBatch:
        events = self._events(payload)
        t = events["us"].astype(np.int64)
        wraps = t[1:] - t[:-1] < -(1 << 30)
        if wraps.any():
            t[1:] += np.cumsum(wraps) << 31
        t += time_base // 1000
        data = events["data"]
        return self._batch(t, data >> 17, data >> 2 & np.uint32(0x7FFF), data >> 1 & np.uint32(1))
