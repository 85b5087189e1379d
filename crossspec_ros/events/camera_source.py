"""Sources of live cameras, which come and go and are connected again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.cdr import RecordedMessage, event_packet, image

RETRY_S, MAX_RETRY_S = 0.5, 1.0
"""Pause between two connections at first, and at most."""

Clock = Callable[[], int]
"""Returns ROS time in ns."""


class Link(NamedTuple):
    """News of a source: it is connected, or why it is not."""

    is_up: bool
    why: str = ""


class Unusable(NamedTuple):
    """A frame that no message can carry, and why."""

    why: str


class Backlog(NamedTuple):
    """State of the queue of a camera's library, in packets."""

    waiting: int
    dropped: int
    """Since the `Backlog` before."""


class UnreachableError(InputError):
    """No camera is attached, or no server answers; one may later."""


Item = RecordedMessage | Unusable | Backlog


class Source(NamedTuple):
    """A camera or network stream that comes and goes."""

    name: str
    """As the user gave it."""
    kinds: tuple[str, ...]
    """Kinds of its messages, of "events" and "image"."""
    connect: Callable[[], Any]
    """Returns a reader."""
    read: Callable[[Any, threading.Event, Clock], Generator[Item]]
    """Yields the items of a reader until its connection ends or the event is set."""

    def __str__(self) -> str:
        return self.name

    def items(self, stop: threading.Event, now_ns: Clock) -> Iterator[Item | Link]:
        """Yield messages, stamped when they come, and news of the connection until `stop` is set.

        Raises InputError if the first connection fails for a reason that waiting does not remove.
        """
        # The first messages take a second, in which libraries of cameras drop data.
        event_packet(0, b"", "mono", (1, 1))
        image(0, np.zeros((1, 1), np.uint8), "mono8")
        was_up, pause_s = False, RETRY_S
        while not stop.is_set():
            why = "it has gone"
            try:
                # No name holds the reader, because a device can be opened again only when it was released.
                items = self.read(self.connect(), stop, now_ns)
                was_up = True
                yield Link(True)
                with closing(items):
                    for item in items:
                        pause_s = RETRY_S
                        yield item
            # A new process frees the memory.
            except MemoryError:
                raise
            except Exception as error:
                stays = isinstance(error, (InputError, ImportError))
                if stays and not isinstance(error, UnreachableError) and not was_up:
                    raise
                why = str(error) if isinstance(error, InputError) else reason(error)
            if not stop.is_set():
                yield Link(False, why)
            stop.wait(pause_s)
            pause_s = min(2 * pause_s, MAX_RETRY_S)


def reason(error: Exception) -> str:
    """Return the last line of a library's message, without the position in its code."""
    text = str(error).partition("\nStacktrace")[0].partition(" [system:")[0].strip()
    return (text.splitlines() or [type(error).__name__])[-1].rstrip(".")
