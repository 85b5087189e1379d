"""From the clock of a camera that counts time since the epoch to this host's clock."""

from __future__ import annotations

import threading
from collections.abc import Callable

JUMP_NS = 1_000_000_000
"""Clocks that are this far apart are different ones; delays look alike and are shorter."""
_AHEAD_NS = 50_000_000
"""A clock that is ahead of this host's by less may be the same one, set by NTP."""
_BLOCK_NS = 5_000_000_000
_STEADY_NS = 20_000_000
# 200 ppm of a block: faster than any quartz drifts, too slow for a queue of seconds to pass for a drift.
_STEP_NS = 1_000_000


class HostClock:
    """Adds one offset to the stamps of all streams of a camera, from any thread.

    A clock less than a second behind this host's or 50 ms ahead passes for this host's, and stamps stay as
    they are; for any other the first message tells the offset. From then on the offset stays the same to
    the nanosecond, so that events and frames stay together exactly, but for steps of a millisecond in five
    seconds at most against drift, and one step where a clock was set. `now_ns` reads this host's clock.
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._offset_ns = 0
        # The least delays, which are those of the way and not of queues: of the first block, and of this one.
        self._usual_ns: int | None = None
        self._least_ns = 0
        self._block_ends_ns = 0
        self._first_block = True
        self._fresh = True

    def to_host_ns(self, stamp_ns: int) -> int:
        """The stamp of a message that has just come, in ns of this host's clock."""
        with self._lock:
            now_ns = self._now_ns()
            self._learn(now_ns - stamp_ns, now_ns)
            return stamp_ns + self._offset_ns

    def reconnected(self) -> None:
        """The camera was away and may have had its clock set."""
        with self._lock:
            self._fresh = True

    def _learn(self, delay_ns: int, now_ns: int) -> None:
        error_ns = delay_ns - (self._usual_ns or 0)
        if self._usual_ns is None or error_ns < -JUMP_NS or (self._fresh and error_ns > JUMP_NS):
            self._set(delay_ns, now_ns)
        self._fresh = False
        self._least_ns = min(self._least_ns, delay_ns)
        if now_ns < self._block_ends_ns:
            return
        assert self._usual_ns is not None
        error_ns = self._least_ns - self._usual_ns
        if self._first_block:
            self._usual_ns, self._first_block = self._least_ns, False
        elif error_ns > JUMP_NS:
            self._set(self._least_ns, now_ns)
        elif abs(error_ns) > _STEADY_NS:
            step_ns = max(-_STEP_NS, min(_STEP_NS, error_ns))
            self._offset_ns += step_ns
            self._usual_ns += step_ns
        self._least_ns, self._block_ends_ns = delay_ns, now_ns + _BLOCK_NS

    def _set(self, delay_ns: int, now_ns: int) -> None:
        self._offset_ns = 0 if -_AHEAD_NS <= delay_ns <= JUMP_NS else delay_ns
        self._usual_ns = self._least_ns = delay_ns
        self._first_block = True
        self._block_ends_ns = now_ns + _BLOCK_NS
