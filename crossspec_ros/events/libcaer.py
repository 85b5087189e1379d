"""The `libcaer` encoding: iniVation's own polarity events, 64 bits each."""

from __future__ import annotations

from collections import Counter

import numpy as np

from crossspec_ros.events.batch import EventBatch, drop_outside

# data: bit 1 polarity, bits 2-16 y, bits 17-31 x; us: 31 bits over time_base.
_EVENT = np.dtype([("data", "<u4"), ("us", "<i4")])
_ROLLOVER_US = 1 << 31


class LibcaerDecoder:
    """Decodes `libcaer` packets; t is time_base plus the event's time, in whole us of the host's clock.

    The driver moves time_base on when the 31-bit time wraps, so a wrap matters only within a packet.
    event_camera_codecs takes every step back for a wrap; here only one by more than half the range is,
    because times go back a little under load.
    """

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.damage: Counter[str] = Counter()

    def decode(self, payload: bytes | memoryview, time_base: int = 0) -> EventBatch:
        count, torn = divmod(len(payload), _EVENT.itemsize)
        if torn:
            self.damage["torn_events"] += 1
        events = np.frombuffer(payload, _EVENT, count)
        t = events["us"].astype(np.int64)
        wraps = t[1:] - t[:-1] < -_ROLLOVER_US // 2
        if wraps.any():
            t[1:] += np.cumsum(wraps) * _ROLLOVER_US
        t += time_base // 1000
        data = events["data"]
        x, y, p = data >> 17, (data >> 2) & np.uint32(0x7FFF), (data >> 1) & np.uint32(1)
        batch = EventBatch(
            t, x.astype(np.uint16), y.astype(np.uint16), p.astype(np.uint8), self.width, self.height
        )
        return drop_outside(batch, self.damage)
