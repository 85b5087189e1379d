"""The `libcaer` encoding: iniVation's own polarity events, 64 bits each."""

from __future__ import annotations

from collections import Counter

import numpy as np

from crossspec_ros.events.batch import NO_TRIGGERS, EventBatch, check_count, drop_outside
from crossspec_ros.events.splice import Payload, Splice

# data: bit 0 is set in valid events, bit 1 polarity, bits 2-16 y, bits 17-31 x; us: 31 bits over time_base.
_EVENT = np.dtype([("data", "<u4"), ("us", "<i4")])
_ROLLOVER_US = 1 << 31


class LibcaerDecoder:
    """Decodes `libcaer` packets; t is time_base plus the event's time, in whole us of the host's clock.

    The driver moves time_base on when the 31-bit time wraps, so a wrap matters only within a packet.
    event_camera_codecs takes every step back for a wrap; here only one by more than half the range is,
    because times go back a little under load.
    """

    triggers = NO_TRIGGERS

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.damage: Counter[str] = Counter()
        self._splice = Splice(_EVENT, self._count_impossible, self.damage)

    def decode(self, payload: Payload, time_base: int = 0) -> EventBatch:
        check_count(len(payload) // _EVENT.itemsize)
        events = self._splice.words(payload)
        t = events["us"].astype(np.int64)
        wraps = t[1:] - t[:-1] < -_ROLLOVER_US // 2
        if wraps.any():
            t[1:] += np.cumsum(wraps) * _ROLLOVER_US
        t += time_base // 1000
        x, y, p = _fields(events["data"])
        return drop_outside(EventBatch(t, x, y, p, self.width, self.height), self.damage)

    def _count_impossible(self, events: np.ndarray) -> int:
        x, y, _ = _fields(events["data"])
        is_valid = events["data"] & 1 == 1
        return int(np.sum((x >= self.width) | (y >= self.height) | ~is_valid))


def _fields(data: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    y, p = data >> 2 & np.uint32(0x7FFF), data >> 1 & np.uint32(1)
    return (data >> 17).astype(np.uint16), y.astype(np.uint16), p.astype(np.uint8)
