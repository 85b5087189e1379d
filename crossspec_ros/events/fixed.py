"""The encodings of 64 bits an event, which numpy alone reads: `mono` and `libcaer`, and `trigger`."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import numpy as np

from crossspec_ros.events.batch import NO_TRIGGERS, EventBatch, Triggers, check_count, drop_outside
from crossspec_ros.events.splice import Payload, Splice


class _FixedDecoder:
    """Finds whole events in payloads."""

    fields: ClassVar[np.dtype]
    """Names and types of an event's fields, little-endian."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.damage: Counter[str] = Counter()
        self.triggers = NO_TRIGGERS
        self._splice = Splice(self.fields, self._count_impossible, self.damage)

    def _events(self, payload: Payload) -> np.ndarray:
        check_count(len(payload) // self.fields.itemsize)
        return self._splice.words(payload)

    def _batch(self, t: np.ndarray, x: np.ndarray, y: np.ndarray, p: np.ndarray) -> EventBatch:
        batch = EventBatch(
            t, x.astype(np.uint16), y.astype(np.uint16), p.astype(np.uint8), self.width, self.height
        )
        return drop_outside(batch, self.damage)

    def _count_impossible(self, events: np.ndarray) -> int:
        raise NotImplementedError


class MonoDecoder(_FixedDecoder):
    """Decodes `mono` packets, as event_camera_codecs does; t = time_base + dt, in whole us."""

    # Bits 0-31 ns over time_base, 32-47 x, 48-62 y, 63 polarity.
    fields = np.dtype([("dt", "<u4"), ("x", "<u2"), ("yp", "<u2")])

    def decode(self, payload: Payload, time_base: int = 0) -> EventBatch:
        events = self._events(payload)
        t = _times_us(events["dt"], time_base)
        return self._batch(t, events["x"], events["yp"] & np.uint16(0x7FFF), events["yp"] >> 15)

    def _count_impossible(self, events: np.ndarray) -> int:
        return int(np.sum((events["x"] >= self.width) | (events["yp"] & 0x7FFF >= self.height)))


class LibcaerDecoder(_FixedDecoder):
    """Decodes `libcaer` packets; t is time_base plus the event's time, in whole us of the host's clock.

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

    def _count_impossible(self, events: np.ndarray) -> int:
        data = events["data"]
        is_outside = (data >> 17 >= self.width) | (data >> 2 & 0x7FFF >= self.height)
        return int(np.sum(is_outside | (data & 1 == 0)))


class TriggerDecoder(_FixedDecoder):
    """Decodes `trigger` packets, which have a topic of their own and no events; t as in `mono`."""

    # Bits 0-31 ns over time_base, 48-62 channel, 63 polarity.
    fields = np.dtype([("dt", "<u4"), ("unused", "<u2"), ("channel_p", "<u2")])

    def decode(self, payload: Payload, time_base: int = 0) -> EventBatch:
        edges = self._events(payload)
        channel, p = edges["channel_p"] & np.uint16(0x7FFF), (edges["channel_p"] >> 15).astype(np.uint8)
        self.triggers = Triggers(_times_us(edges["dt"], time_base), channel, p)
        return EventBatch.empty(self.width, self.height)

    def _count_impossible(self, events: np.ndarray) -> int:
        return int(np.count_nonzero(events["unused"]))


def _times_us(dt_ns: np.ndarray, time_base: int) -> np.ndarray:
    base_us, base_ns = divmod(time_base, 1000)
    return (dt_ns.astype(np.int64) + base_ns) // 1000 + base_us
