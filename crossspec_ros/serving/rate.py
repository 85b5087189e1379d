"""How much a robot may say in a second, however many streams it says it on."""

from __future__ import annotations

import time
from collections import Counter

from crossspec_ros.errors import InputError

MOST_MESSAGES, MOST_BYTES = 400, 128 << 20
"""Of a robot in a second: eight times what eight camera frames of 1440x1080 and their questions need."""


class Rate:
    """What robots have said in this second; for one thread."""

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
