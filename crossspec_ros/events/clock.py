"""From the sensor's clock to ROS time."""

from __future__ import annotations

from collections import Counter

import numpy as np

from crossspec_ros.compiled import compiled

ALPHA = 0.01
JUMP_NS = 500_000_000
# A host that catches up gets packets whose offsets shrink; the offset of a clock that was set stays.
_STEADY_NS = 100_000_000
_STEADY_US = 1_000_000
# Sensors count 24 bits of us. A decoder that hears nothing for longer misses a wrap.
_WRAP_NS = (1 << 24) * 1000
# Of wraps, so that few resets pass for them, and of what is not sure yet.
_TIGHT_NS = 50_000_000
# Packets after the first one, and after a jump, that may still correct it: it may have been damaged.
_TRIALS = 3


@compiled("void(Array(int64, 1, 'C', readonly=True), int64, int64, int64[::1])")
def _map(t_us: np.ndarray, first_us: int, first_ns: int, ros_ns: np.ndarray) -> None:
    for i in range(t_us.size):
        ros_ns[i] = (t_us[i] - first_us) * 1000 + first_ns


class SensorClock:
    """Tracks how far ROS time is ahead of the sensor's clock.

    A packet's stamp is when its host received it, so each packet tells the offset with the jitter of its
    transport; an exponential average (alpha 0.01, the custom of the ROS event camera tools) smooths it. An
    offset that is off by more than half a second is counted in `counts` as one of
    - `missed_wraps`: whole wraps of a 24-bit clock, which are made good;
    - `late_packets`: the sensor's own time went on, so that only the stamp is odd, and tells nothing;
    - `clock_jumps`: the sensor's time jumped, or the host's clock has been another one for a second; the
      average starts anew.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        # The offset is an exact integer plus a small float, so that exact stamps map exactly.
        self._anchor_ns: int | None = None
        self._drift_ns = 0.0
        self._last_us = 0
        self._odd_ns, self._odd_since_us = 0, 0
        self._trials = _TRIALS

    def to_ros_ns(self, batch_t_us: np.ndarray, stamp_ns: int) -> np.ndarray:
        """Map one packet's event times (N,) in us, stamped `stamp_ns`, to (N,) int64 ns of ROS time."""
        ros_ns = np.empty(len(batch_t_us), np.int64)
        if len(batch_t_us):
            first_us = int(batch_t_us[0])
            anchor_ns = self._follow(first_us, stamp_ns - first_us * 1000)
            self._last_us = int(batch_t_us[-1])
            first_ns = first_us * 1000 + anchor_ns + round(self._drift_ns)
            _map(np.ascontiguousarray(batch_t_us), first_us, first_ns, ros_ns)
        return ros_ns

    def _follow(self, first_us: int, offset_ns: int) -> int:
        """Learn the offset of one packet; returns the anchor."""
        if self._anchor_ns is None:
            self._anchor_ns = offset_ns
            return self._anchor_ns
        error_ns = offset_ns - self._anchor_ns - self._drift_ns
        wraps = round(error_ns / _WRAP_NS)
        rest_ns = error_ns - wraps * _WRAP_NS
        if abs(rest_ns) <= (_TIGHT_NS if wraps or self._trials else JUMP_NS):
            self.counts["missed_wraps"] += abs(wraps)
            self._anchor_ns += wraps * _WRAP_NS
            self._drift_ns += ALPHA * rest_ns
            self._trials = 0
        elif self._trials:
            self._trials -= 1
            self._anchor_ns, self._drift_ns = offset_ns, 0.0
        elif self._is_only_late(first_us, offset_ns):
            self.counts["late_packets"] += 1
        else:
            self.counts["clock_jumps"] += 1
            self._anchor_ns, self._drift_ns, self._trials = offset_ns, 0.0, _TRIALS
        return self._anchor_ns

    def _is_only_late(self, first_us: int, offset_ns: int) -> bool:
        if not 0 <= (first_us - self._last_us) * 1000 <= JUMP_NS:
            return False
        if abs(offset_ns - self._odd_ns) > _STEADY_NS:
            self._odd_ns, self._odd_since_us = offset_ns, first_us
        return 0 <= first_us - self._odd_since_us < _STEADY_US
