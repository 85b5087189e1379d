"""A queue that is bounded in messages and in bytes: of full-HD frames 2,000 would be 12 GB."""

from __future__ import annotations

import queue
from typing import Any


class MessageQueue(queue.Queue[tuple[str, Any] | None]):
    """Of streams and their messages, serialized or not; None ends it.

    Raises queue.Full also for a message with which more than `most_bytes` would wait; one that
    waits alone may be larger.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        super().__init__(most)
        self._most_bytes = most_bytes
        self.bytes = 0

    # Called by `queue.Queue` with its lock held, as its documentation offers.
    def _put(self, item: tuple[str, Any] | None) -> None:
        size = _size(item)
        if self.bytes and self.bytes + size > self._most_bytes:
            raise queue.Full
        super()._put(item)
        self.bytes += size

    def _get(self) -> tuple[str, Any] | None:
        item = super()._get()
        self.bytes -= _size(item)
        return item


def _size(item: tuple[str, Any] | None) -> int:
    """Of the payload; all else is small beside it."""
    if item is None:
        return 0
    message = item[1]
    # An event packet has `events`, an image has `data`.
    return len(getattr(message, "events", getattr(message, "data", message)))
