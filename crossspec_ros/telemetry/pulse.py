"""Pulses of threads, and a watchdog that finds dead and stuck threads.

The process then ends, so that launch, systemd or Ray Serve restart it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from crossspec_ros.errors import described

PATIENCE_S = 60
"""Seconds without a step after which a busy thread is stuck. Processes with models add their loading time."""
_BEAT_S = 1.0

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_OWN: ContextVar[Pulse | None] = ContextVar("own", default=None)
"""The pulse of the current thread."""


class Pulse:
    """Sign of life of one thread. `start` creates the thread, or a pool's thread calls `adopt`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_busy = False
        self.silent_s = 0
        """Looks of the watchdog, one per second, since the last step of the current work."""
        self._thread: threading.Thread | None = None
        self._reason = "reason unknown"
        self._is_ending = False

    @property
    def death(self) -> str:
        """The reason why the thread has ended. Empty before its start, while it runs, and after `end`."""
        if self._is_ending or self._thread is None or self._thread.is_alive():
            return ""
        return self._reason

    def start(self, work: Callable[[], None], name: str) -> threading.Thread:
        """Start and return a daemon thread with this name and work."""
        thread = threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
        thread.start()
        self._thread = thread
        return thread

    def adopt(self) -> None:
        """Make this the pulse of the calling thread."""
        self._thread = threading.current_thread()
        _OWN.set(self)

    def end(self) -> None:
        """Announce that the thread will end as intended."""
        self._is_ending = True

    def beat(self) -> None:
        """Report that a step is done."""
        self.silent_s = 0

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Mark the work on one item. Waiting for the next item must be outside of the block."""
        self.silent_s, self.is_busy = 0, True
        try:
            yield
        finally:
            self.is_busy = False

    def _run(self, work: Callable[[], None]) -> None:
        _OWN.set(self)
        try:
            work()
            self._reason = "its work returned"
        except BaseException as error:  # Python itself would print the error unescaped
            self._reason = f"{type(error).__name__}: {error}"
            _LOG.error("the thread '%s' has ended: %s", self.name, described(error))


def waited(work: Future[_T]) -> _T:
    """Return the result of another watched thread's work. The calling thread beats while it waits."""
    pulse = _OWN.get()
    while not wait([work], _BEAT_S).done:
        if pulse is not None:
            pulse.beat()
    return work.result()


class ThreadWatch:
    """Watchdog that looks at all `pulses` once a second.

    It counts looks in place of time, so that a process that was suspended for an hour is not stuck.
    """

    def __init__(self, pulses: Callable[[], Iterable[Pulse]]) -> None:
        self._pulses = pulses
        self.patience_s = PATIENCE_S
        self.fault = ""
        """The fault at the last look, or an empty text."""
        self.values: dict[str, str] = {}
        """State of each thread at the last look: waiting, busy, stuck or dead."""

    def look(self) -> str:
        """Update the states, and return the fault or an empty text."""
        found = [(pulse.name, *_state(pulse, self.patience_s)) for pulse in self._pulses()]
        self.values = {name: state for name, state, _ in found}
        self.fault = "; ".join(f"the thread of the {name} has {fault}" for name, _, fault in found if fault)
        return self.fault


def _state(pulse: Pulse, patience_s: int) -> tuple[str, str]:
    """Return a thread's state, and the end of the sentence about its fault."""
    if death := pulse.death:
        return "dead", f"ended ({death})"
    if not pulse.is_busy:
        return "waiting", ""
    silent_s = pulse.silent_s
    pulse.silent_s += 1
    return ("stuck", f"been stuck for {silent_s} s") if silent_s >= patience_s else ("busy", "")
