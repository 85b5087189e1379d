"""The `mono` encoding: 64 bits an event, readable without any state."""

from __future__ import annotations

from collections import Counter

import numpy as np

from crossspec_ros.events.batch import NO_TRIGGERS, EventBatch, check_count, drop_outside
from crossspec_ros.events.splice import Payload, Splice

# A little-endian uint64: bits 0-31 ns over time_base, 32-47 x, 48-62 y, 63 polarity.
_EVENT = np.dtype([("dt", "<u4"), ("x", "<u2"), ("yp", "<u2")])


class MonoDecoder:
    """Decodes `mono` packets, as event_camera_codecs does; t = time_base + dt, in whole us."""

    triggers = NO_TRIGGERS

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.damage: Counter[str] = Counter()
        self._splice = Splice(_EVENT, self._count_outside, self.damage)

    def decode(self, payload: Payload, time_base: int = 0) -> EventBatch:
        check_count(len(payload) // _EVENT.itemsize)
        events = self._splice.words(payload)
        base_us, base_ns = divmod(time_base, 1000)
        t = (events["dt"].astype(np.int64) + base_ns) // 1000 + base_us
        x, y, p = events["x"].copy(), events["yp"] & np.uint16(0x7FFF), (events["yp"] >> 15).astype(np.uint8)
        return drop_outside(EventBatch(t, x, y, p, self.width, self.height), self.damage)

    def _count_outside(self, events: np.ndarray) -> int:
        return int(np.sum((events["x"] >= self.width) | (events["yp"] & 0x7FFF >= self.height)))
