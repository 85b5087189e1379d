"""What a player has published and its synchronizer has not taken yet, by what comes out of that."""

from __future__ import annotations

from collections import deque

from crossspec_ros.windows.grid import WindowGrid
from crossspec_ros.windows.synchronizer import EVENTS, FRAMES

MOST = {EVENTS: 800, FRAMES: 8}
"""A little less than the synchronizer's best-effort queues hold."""


class Backlog:
    """Says when the next message must wait, lest it push another one out of a queue or make it late.

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
