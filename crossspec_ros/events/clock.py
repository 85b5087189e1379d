"""From the sensor's clock to ROS time."""

from __future__ import annotations

from collections import Counter

import numpy as np

ALPHA = 0.01
JUMP_NS = 500_000_000


class SensorClock:
    """Tracks how far ROS time is ahead of the sensor's clock.

    A packet's stamp is when its host received it, so each packet tells the offset with the jitter of its
    transport; an exponential average (alpha 0.01, the custom of the ROS event camera tools) smooths it. When
    the offset jumps by more than half a second, because a clock was reset or a recording starts over, the
    average starts anew; `counts["clock_jumps"]` says how often.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        # The offset is an exact integer plus a small float, so that exact stamps map exactly.
        self._anchor_ns: int | None = None
        self._drift_ns = 0.0

    def to_ros_ns(self, batch_t_us: np.ndarray, stamp_ns: int) -> np.ndarray:
        """Map one packet's event times (N,) in us, stamped `stamp_ns`, to (N,) int64 ns of ROS time."""
        if not len(batch_t_us):
            return np.empty(0, np.int64)
        first_us = int(batch_t_us[0])
        offset_ns = stamp_ns - first_us * 1000
        if self._anchor_ns is not None and abs(offset_ns - self._anchor_ns - self._drift_ns) <= JUMP_NS:
            self._drift_ns += ALPHA * (offset_ns - self._anchor_ns - self._drift_ns)
        else:
            self.counts["clock_jumps"] += self._anchor_ns is not None
            self._anchor_ns, self._drift_ns = offset_ns, 0.0
        first_ns = first_us * 1000 + self._anchor_ns + round(self._drift_ns)
        return (batch_t_us - first_us) * 1000 + first_ns
