"""The `trigger` encoding: edges on a sensor's trigger inputs, on a topic of their own."""

from __future__ import annotations

from collections import Counter

import numpy as np

from crossspec_ros.events.batch import NO_TRIGGERS, EventBatch, Triggers, check_count
from crossspec_ros.events.splice import Payload, Splice

# A little-endian uint64: bits 0-31 ns over time_base, 48-62 channel, 63 polarity.
_EDGE = np.dtype([("dt", "<u4"), ("unused", "<u2"), ("channel_p", "<u2")])


class TriggerDecoder:
    """Decodes `trigger` packets, which hold no events; t = time_base + dt, in whole us."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.damage: Counter[str] = Counter()
        self.triggers: Triggers = NO_TRIGGERS
        self._splice = Splice(_EDGE, lambda edges: int(np.count_nonzero(edges["unused"])), self.damage)

    def decode(self, payload: Payload, time_base: int = 0) -> EventBatch:
        check_count(len(payload) // _EDGE.itemsize)
        edges = self._splice.words(payload)
        base_us, base_ns = divmod(time_base, 1000)
        t = (edges["dt"].astype(np.int64) + base_ns) // 1000 + base_us
        channel, p = edges["channel_p"] & np.uint16(0x7FFF), (edges["channel_p"] >> 15).astype(np.uint8)
        self.triggers = Triggers(t, channel, p)
        return EventBatch.empty(self.width, self.height)
