"""The pulse of a thread, and its watch: one that is dead or stuck is a fault, and the end of its process.

A process that is up but mute helps nobody; one that ends is started again by launch, systemd or Ray Serve.
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
"""A thread is stuck that is busy for so long without a step; whoever loads models adds what these need."""
FAREWELL_S = 3
"""A fault is reported for so long before it is the end."""
_BEAT_S = 1.0

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_OWN: ContextVar[Pulse | None] = ContextVar("own", default=None)
"""The pulse of the thread that looks."""


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
        _OWN.set(self)

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
        _OWN.set(self)
        try:
            work()
        except BaseException as error:  # it ends here, and Python would print it as it is
            reason = type(error).__name__
            _LOG.error("the thread '%s' has ended: %s", self.name, described(error))
            reason = f"{reason}: {error}"
        finally:
            self._reason = reason


def waited(work: Future[_T]) -> _T:
    """Wait for what another thread does, and return it. That thread has a pulse; this one beats meanwhile."""
    pulse = _OWN.get()
    while not wait([work], _BEAT_S).done:
        if pulse is not None:
            pulse.beat()
    return work.result()


class ThreadWatch:
    """Looks at the pulses that `pulses` gives at the time, once a second.

    Looks are counted and not time, so that a process that was stopped for an hour is not taken for stuck.
    """

    def __init__(self, pulses: Callable[[], Iterable[Pulse]]) -> None:
        self._pulses = pulses
        self.patience_s = PATIENCE_S
        self.fault = ""
        """The fault at the last look, if any."""
        self.values: dict[str, str] = {}
        """The state of each thread then: waiting, busy, stuck, or dead."""
        self._silent: dict[Pulse, tuple[int, int]] = {}
        self._faulty = 0

    def look(self) -> str:
        """The fault of this moment, if any."""
        silent, faults, values = {}, [], {}
        for pulse in self._pulses():
            beats, looks = self._silent.get(pulse, (-1, 0))
            looks = looks + 1 if pulse.is_busy and beats == pulse.beats else 0
            silent[pulse] = pulse.beats, looks
            values[pulse.name] = "busy" if pulse.is_busy else "waiting"
            if death := pulse.death:
                values[pulse.name] = "dead"
                faults.append(f"the thread of the {pulse.name} has ended ({death})")
            elif looks >= self.patience_s:
                values[pulse.name] = "stuck"
                faults.append(f"the thread of the {pulse.name} has been stuck for {looks} s")
        self._silent, self.values = silent, values
        self._faulty = self._faulty + 1 if faults else 0
        self.fault = "; ".join(faults)
        return self.fault

    @property
    def is_final(self) -> bool:
        """Whether something has been wrong for more than `FAREWELL_S` looks."""
        return self._faulty > FAREWELL_S
