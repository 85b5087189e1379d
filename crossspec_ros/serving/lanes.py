"""Lanes: a thread for each robot, so that none waits for another's work, and how much it may say."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from crossspec_ros.errors import InputError
from crossspec_ros.telemetry.pulse import Pulse

MOST_WAITING = 4
"""Pieces of a robot's work: those of its stream, and of earlier ones that end."""

MOST_MESSAGES = 400
"""Messages of a robot in a second: eight times what eight camera frames and their questions need."""
MOST_BYTES = 128 << 20
"""Bytes of a robot in a second: eight times what eight frames of 1440x1080 need."""


class Lane:
    """Does what the streams of one robot ask for, in that order, one at a time."""

    def __init__(self, robot: str) -> None:
        self.robot, self.streams = robot, 0
        self.pulse = Pulse(f"robot {robot!r:.64}")
        # Each is counted by one thread.
        self._asked = self._done = 0
        self._thread = ThreadPoolExecutor(1, "robot", self.pulse.adopt)

    def check(self) -> None:
        """Raises InputError where so much waits that another stream must not begin."""
        if self._asked - self._done >= MOST_WAITING:
            raise InputError(
                "earlier streams of this robot have not ended yet: wait, and send smaller frames (frame_size)"
            )

    def do(self, work: Callable[..., None], *arguments: Any) -> Future[None]:
        """For the thread of the event loop alone."""
        self._asked += 1
        return self._thread.submit(self._do, work, *arguments)

    def close(self) -> None:
        """Nothing more will come; what waits is done."""
        self.pulse.end()
        self._thread.shutdown(wait=False)

    def _do(self, work: Callable[..., None], *arguments: Any) -> None:
        try:
            with self.pulse.busy():
                work(*arguments)
        finally:
            self._done += 1


class Lanes:
    """The lanes of all robots that have a stream; safe for any thread."""

    def __init__(self) -> None:
        self._lanes: dict[str, Lane] = {}
        self._lock = threading.Lock()

    @property
    def pulses(self) -> list[Pulse]:
        with self._lock:
            return [lane.pulse for lane in self._lanes.values()]

    def enter(self, robot: str) -> Lane:
        """A stream of this robot begins; raises InputError where its earlier ones do not end."""
        with self._lock:
            lane = self._lanes.get(robot) or Lane(robot)
            lane.check()
            lane.streams += 1
            self._lanes[robot] = lane
        return lane

    def leave(self, lane: Lane) -> None:
        """A stream has ended."""
        with self._lock:
            lane.streams -= 1
            if not lane.streams:
                del self._lanes[lane.robot]
                lane.close()


class Rate:
    """Count of what robots have said in this second; for one thread."""

    def __init__(self) -> None:
        self._second = 0
        self._messages, self._bytes = Counter[str](), Counter[str]()

    def check(self, robot: str, size: int, now_s: float | None = None) -> None:
        """Count a message of so many bytes; raises InputError where there are too many, or too large ones."""
        second = int(time.monotonic() if now_s is None else now_s)
        if second != self._second:
            self._second = second
            self._messages.clear()
            self._bytes.clear()
        self._messages[robot] += 1
        self._bytes[robot] += size
        if self._messages[robot] > MOST_MESSAGES or self._bytes[robot] > MOST_BYTES:
            raise InputError(
                f"more than {MOST_MESSAGES} messages or {MOST_BYTES >> 20} MB came in a second: send frames "
                f"at the camera's rate"
            )
