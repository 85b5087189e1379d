"""Ends a node with a dead or stuck thread, the one that takes its messages included."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from crossspec_ros.plain_text import plain_text
from crossspec_ros.ros.run import ENDING_S, ThreadError, end_within
from crossspec_ros.telemetry.pulse import Pulse, ThreadWatch

LOOK_S = 1.0


class NodeWatch:
    """Looks at a node's threads once a second, in a thread of its own: that of its callbacks may be stuck.

    A fault is told by `tell`, in that thread. A node that has not ended by itself `ENDING_S` after its
    farewell is ended here, with code 1.
    """

    def __init__(self, threads: ThreadWatch, tell: Callable[[], None]) -> None:
        self.threads, self._tell = threads, tell
        self._stopping = threading.Event()
        self._is_raised = False
        self.pulse = Pulse("watch")
        self._thread = self.pulse.start(self._work, "watch")

    @property
    def fault(self) -> str:
        """What was wrong at the last look, if anything."""
        death = self.pulse.death
        return f"the thread of the {self.pulse.name} has ended ({death})" if death else self.threads.fault

    def check(self) -> None:
        """Raises ThreadError for a fault that has been told for long enough; for the thread of the node."""
        if self.threads.is_final or self.pulse.death:
            self._is_raised = True
            raise ThreadError(_sentence(self.fault))

    def stop(self) -> None:
        """The node ends."""
        self.pulse.end()
        self._stopping.set()
        self._thread.join(LOOK_S)

    def _work(self) -> None:
        left = round(ENDING_S / LOOK_S)
        while not self._stopping.wait(LOOK_S):
            if self.threads.look():
                # Whether or not it can be told, it is the end.
                with suppress(Exception):
                    self._tell()
            if not self.threads.is_final:
                continue
            left -= 1
            if left < 0:
                # Whoever reads what is said may be gone, or may never read it.
                end_within(LOOK_S)
                with suppress(Exception):
                    if not self._is_raised:
                        sentence = plain_text(_sentence(self.fault))
                        print(f"crossspec: error: {sentence}", file=sys.stderr, flush=True)
                os._exit(1)


def _sentence(fault: str) -> str:
    return f"{fault}: start the node again, and report it if it comes back"
