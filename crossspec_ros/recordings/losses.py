"""What of a recording cannot be read."""

from __future__ import annotations

_TOLD = 5
"""Losses that are told one by one."""


class Losses:
    """What cannot be read, a phrase each: only the first are kept, for there may be a million."""

    def __init__(self) -> None:
        self._first: list[str] = []
        self._more = 0

    def append(self, loss: str) -> None:
        if len(self._first) < _TOLD:
            self._first.append(loss)
        else:
            self._more += 1

    def told(self) -> list[str]:
        """Those, and how many more there are."""
        return [*self._first, f"and {self._more} more"] if self._more else self._first
