"""When each message of a replay is due."""

from __future__ import annotations

import time
from collections.abc import Callable

MOST_BEHIND_S = 0.1
"""Of the recording's time: what is played at once must fit into the queues of best-effort subscribers."""


class Pace:
    """Maps stamps to the monotonic clock at `rate`, from the first stamp in hand on.

    A replay that falls behind, because its reader or its machine stalled, goes on from where it is. Playing
    the backlog at once would lose it: best-effort subscribers keep a few messages only.
    """

    def __init__(self, rate: float, now: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._now = rate, now
        self._first_ns, self._first_s = 0, 0.0
        self.held_up_s = 0.0
        """How much longer the replay takes since it fell behind."""

    def start(self, stamp_ns: int) -> None:
        """This stamp is due now."""
        self._first_ns, self._first_s = stamp_ns, self._now()

    def shift(self, seconds: float) -> None:
        """All that follows is due so much later."""
        self._first_s += seconds

    def left_s(self, stamp_ns: int) -> float:
        """Seconds until this stamp is due; 0 or a little less when it is."""
        due_s = self._first_s + (stamp_ns - self._first_ns) / 1e9 / self._rate
        left_s = due_s - self._now()
        if left_s < -MOST_BEHIND_S / self._rate:
            self.shift(-left_s)
            self.held_up_s -= left_s
            return 0.0
        return left_s

    def reached_ns(self, stamp_ns: int) -> int:
        """The replay's time now, on the way to this stamp."""
        return stamp_ns - max(0, round(self.left_s(stamp_ns) * 1e9 * self._rate))
