"""The pace of a replay: when a message is due, and when it waits because the synchronizer is behind."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from crossspec_ros.windows.grid import WindowGrid
from crossspec_ros.windows.window import EVENTS, FRAMES

MOST_BEHIND_S = 0.1
"""Seconds of the recording's time: what is played at once must fit into best-effort subscribers' queues."""
MOST = {EVENTS: 800, FRAMES: 8}
"""Messages that wait: a little less than the synchronizer's best-effort queues hold."""


class Pace:
    """Maps stamps to the monotonic clock at `rate`, from the first stamp in hand on.

    A replay that falls behind, because its reader or its machine stalled, goes on from where it is. Playing
    the backlog at once would lose it: best-effort subscribers keep a few messages only.
    """

    def __init__(self, rate: float, now: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._now = rate, now
        self._first_ns, self._first_s = 0, 0.0
        self.held_up_s = 0.0
        """Seconds that the replay takes longer because it fell behind."""

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


class Backlog:
    """Messages that were published and not taken yet: says when the next one must wait, lest it push another
    one out of a queue or make it late.

    Of each slot's frames the first comes out, and event images come out in order of their times, so that what
    is published says what has been taken. A stream of which nothing has come out is not waited for.
    """

    def __init__(self, grid: WindowGrid, lateness_ns: int) -> None:
        self._grid = grid
        # One stream may be ahead of the other by the lateness, or closes windows that the other still fills.
        self._lead_ns = lateness_ns * 3 // 4
        self._waiting: dict[str, deque[tuple[int, bool]]] = {EVENTS: deque(), FRAMES: deque()}
        self._is_watched = {EVENTS: False, FRAMES: False}
        self._slot: tuple[int, int] | None = None

    def sent(self, stream: str, stamp_ns: int) -> None:
        """A message has been published on EVENTS or FRAMES."""
        comes_out = True
        if stream == FRAMES:
            slot = (self._grid.index(stamp_ns), self._grid.slot(stamp_ns))
            comes_out, self._slot = slot != self._slot, slot
        waiting = self._waiting[stream]
        if self._is_watched[stream] and (comes_out or waiting):
            waiting.append((stamp_ns, comes_out))

    def came_out(self, stream: str, stamp_ns: int) -> None:
        """All of the stream up to this stamp has been taken."""
        self._is_watched[stream] = True
        waiting = self._waiting[stream]
        while waiting and (waiting[0][0] <= stamp_ns or not waiting[0][1]):
            waiting.popleft()

    def must_wait(self, stream: str, stamp_ns: int) -> bool:
        """Whether a message of this stream and stamp has to wait for what was published before."""
        if len(self._waiting[stream]) >= MOST[stream]:
            return True
        filled_ns = self._grid.start(self._grid.index(stamp_ns - self._lead_ns))
        other = self._waiting[EVENTS if stream == FRAMES else FRAMES]
        return bool(other) and other[0][0] < filled_ns

    @property
    def is_empty(self) -> bool:
        """Whether all is taken that is known of."""
        return not any(self._waiting.values())

    def give_up(self) -> None:
        """Forget what was published: it was lost, could not be read, or nobody takes it."""
        for stream, waiting in self._waiting.items():
            self._is_watched[stream] = self._is_watched[stream] and not waiting
            waiting.clear()
        self._slot = None
