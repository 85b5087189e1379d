"""The pulse of a thread: whether it lives and gets on, for who watches it from another thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from crossspec_ros.errors import described

_LOG = logging.getLogger(__name__)


class Pulse:
    """One thread, named by what it does: one that `start` makes, or a pool's, which calls `adopt`.

    `beats` rises with every step of its work. A thread that is busy, and whose beats do not rise for long, is
    stuck.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.beats = 0
        self.is_busy = False
        self._thread: threading.Thread | None = None
        self._reason = ""
        self._is_ending = False

    @property
    def death(self) -> str:
        """Why the thread has ended; empty while it lives, before it begins, and once it was told to end."""
        if self._is_ending or self._thread is None or self._thread.is_alive():
            return ""
        return self._reason or "it is gone"

    def start(self, work: Callable[[], None], name: str) -> threading.Thread:
        """A thread of this name, which does not hold up the end of the process; `work` is all it does."""
        thread = threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
        thread.start()
        self._thread = thread
        return thread

    def adopt(self) -> None:
        """The thread that calls is this one."""
        self._thread = threading.current_thread()

    def end(self) -> None:
        """The thread is told to end: from now on its end is no fault."""
        self._is_ending = True

    def beat(self) -> None:
        """A step is done."""
        self.beats += 1

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Work on one item; waiting for the next one is outside."""
        self.beats += 1
        self.is_busy = True
        try:
            yield
        finally:
            self.is_busy = False

    def _run(self, work: Callable[[], None]) -> None:
        reason = "its work returned"
        try:
            work()
        except BaseException as error:  # it ends here, and Python would print it as it is
            reason = type(error).__name__
            _LOG.error("the thread '%s' has ended: %s", self.name, described(error))
            reason = f"{reason}: {error}"
        finally:
            self._reason = reason
