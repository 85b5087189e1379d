"""The pulse of a thread: whether it lives and gets on, for who watches it from another thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Pulse:
    """One thread, named by what it does.

    `beats` rises with every step of its work. A thread that is busy, and whose beats do not rise for long, is
    stuck. `death` says why the thread has ended, and is empty while it lives.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.beats = 0
        self.is_busy = False
        self.death = ""

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

    def run(self, work: Callable[[], None]) -> None:
        """Do all that the thread is there for; `death` is set at its end, however that comes."""
        death = "its work returned"
        try:
            work()
        except BaseException as error:
            death = f"{type(error).__name__}: {error}"
            raise
        finally:
            self.death = death
