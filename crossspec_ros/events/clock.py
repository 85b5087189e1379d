"""From the sensor's clock to ROS time."""

from __future__ import annotations

from collections import Counter

import numpy as np

ALPHA = 0.01
JUMP_NS = 500_000_000
# An offset that is off by less is jitter.
_JITTER_NS = 100_000_000
# A host that catches up gets packets whose offsets shrink; the offset of a clock that was set stays.
_STEADY_NS = 50_000_000
_CONFIRMED_US, _ALONE_US, _CONTRADICTED_US = 100_000, 300_000, 3_000_000
"""Times for which a new offset must stay: images jump alike, there are none, or they do not jump."""
# Sensors count 24 bits of us. A decoder that hears nothing for longer misses a wrap.
_WRAP_NS = (1 << 24) * 1000
# Tolerance of wraps, so that few resets pass for wraps, and of offsets that are not certain yet.
_TIGHT_NS = 50_000_000
# Packets after the first one, and after a jump, that may still correct it: it may have been damaged.
_TRIALS = 3


class SensorClock:
    """Track how far ROS time is ahead of the sensor's clock.

    A packet's stamp is when its host received it, so each packet gives the offset with the jitter of its
    transport; an exponential average (alpha 0.01, the custom of the ROS event camera tools) smooths it. An
    offset that is off by more than that is counted in `counts` as one of
    - `missed_wraps`: complete wraps of a 24-bit clock, which are corrected;
    - `sensor_resets`: the sensor's own time jumped; the average starts anew;
    - `clock_steps`: the sensor's own time went on, and the new offset stays: the host's clock was set by
      `step_ns` before the last packet, and the average starts anew;
    - `late_packets`: the sensor's own time went on, so that only the stamp is odd; it is not used.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.step_ns = 0
        self.odd_ns = 0
        """How far the stamps have been off for a while, which the images contradict."""
        # The offset is an exact integer plus a small float, so that exact stamps map exactly.
        self._anchor_ns: int | None = None
        self._drift_ns = 0.0
        self._last_us = 0
        self._odd: tuple[int, int] | None = None
        """An odd offset, and the sensor's time since when it stays."""
        self._undecided = 0
        """Late packets, unless the host's clock was set before them."""
        self._trials = _TRIALS

    def to_ros_ns(
        self, batch_t_us: np.ndarray, stamp_ns: int, image_step_ns: int | None = None
    ) -> np.ndarray:
        """Map one packet's event times (N,) in us, stamped `stamp_ns`, to (N,) int64 ns of ROS time.

        `image_step_ns` is the last jump of the images' stamps against the events; None without images.
        """
        if not len(batch_t_us):
            return np.empty(0, np.int64)
        first_us = int(batch_t_us[0])
        offset_ns = self._follow(first_us, stamp_ns - first_us * 1000, image_step_ns) + round(self._drift_ns)
        self._last_us = int(batch_t_us[-1])
        ros_ns = batch_t_us * 1000
        # Times out of range wrap on both sides.
        ros_ns += np.int64((offset_ns + (1 << 63)) % (1 << 64) - (1 << 63))
        return ros_ns

    def _follow(self, first_us: int, offset_ns: int, image_step_ns: int | None) -> int:
        """Learn the offset of one packet; returns the anchor."""
        self.step_ns = self.odd_ns = 0
        if self._anchor_ns is None:
            self._anchor_ns = offset_ns
            return self._anchor_ns
        error_ns = offset_ns - self._anchor_ns - self._drift_ns
        wraps = round(error_ns / _WRAP_NS)
        rest_ns = error_ns - wraps * _WRAP_NS
        if abs(rest_ns) <= (_TIGHT_NS if wraps or self._trials else _JITTER_NS):
            # The decoder takes a time that goes back for a wrap (a recording begins again); none is missed.
            self.counts["missed_wraps"] += max(0, wraps)
            self._anchor_ns += wraps * _WRAP_NS
            self._drift_ns += ALPHA * rest_ns
            self._trials, self._odd = 0, None
            self._count_late()
        elif self._trials:
            self._trials -= 1
            self._anchor_ns, self._drift_ns = offset_ns, 0.0
        elif not 0 <= (first_us - self._last_us) * 1000 <= JUMP_NS:
            self._start_anew(offset_ns, "sensor_resets")
        elif self._is_set(first_us, offset_ns, error_ns, image_step_ns):
            self._undecided = 0
            self._start_anew(offset_ns, "clock_steps")
            self.step_ns = round(error_ns)
        elif abs(error_ns) > JUMP_NS:
            self._undecided += 1
        return self._anchor_ns

    def _count_late(self) -> None:
        if self._undecided:
            self.counts["late_packets"] += self._undecided
            self._undecided = 0

    def _start_anew(self, offset_ns: int, counter: str) -> None:
        self.counts[counter] += 1
        self._anchor_ns, self._drift_ns, self._trials, self._odd = offset_ns, 0.0, _TRIALS, None

    def _is_set(self, first_us: int, offset_ns: int, error_ns: float, image_step_ns: int | None) -> bool:
        """Return whether an offset shows that the host's clock was set."""
        if self._odd is None or abs(offset_ns - self._odd[0]) > _STEADY_NS:
            self._odd = offset_ns, first_us
            self._count_late()
        steady_us = first_us - self._odd[1]
        if steady_us > 2 * _ALONE_US:
            self._count_late()
        if image_step_ns is None:
            return steady_us >= _ALONE_US
        if abs(image_step_ns - error_ns) < abs(error_ns) / 2:
            return steady_us >= _CONFIRMED_US
        if steady_us >= _CONFIRMED_US and abs(error_ns) > JUMP_NS:
            self.odd_ns = round(error_ns)
        # The first packets of all may have been late.
        return steady_us >= _CONTRADICTED_US and abs(error_ns) <= 2 * JUMP_NS
