"""Two arms: with proposers or plain, whichever takes less time where captions are behind."""

from __future__ import annotations

PROBE_EVERY = 16
_STEP = 0.25
"""Weight of the last window in what an arm takes."""


class Arms:
    """The two ways to caption when windows close faster than they are captioned: with proposers and plain.

    Each is measured, and the quicker one is taken. The other is probed every 16th window, so that the rate of
    captions is never below that of the target alone by more than these probes.
    """

    def __init__(self) -> None:
        self._seconds: dict[bool, float] = {}
        self._windows = 0

    def choose(self) -> bool:
        """Whether the next window is captioned with proposers."""
        self._windows += 1
        for speculates in (True, False):
            if speculates not in self._seconds:
                return speculates
        return (self._seconds[True] <= self._seconds[False]) != (self._windows % PROBE_EVERY == 0)

    def observe(self, speculates: bool, seconds: float) -> None:
        """Learn what a window took."""
        before = self._seconds.get(speculates, seconds)
        self._seconds[speculates] = before + _STEP * (seconds - before)
