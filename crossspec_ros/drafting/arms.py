"""Two arms: captions with and without proposers. A captioner that lags behind uses the faster arm."""

from __future__ import annotations

PROBE_EVERY = 16
_STEP = 0.25
"""Weight of the last window in the average time of an arm."""


class Arms:
    """Chooses between decoding with and without proposers while windows close faster than captions finish.

    It chooses the arm with the lower average time, and the other arm every 16th window. So drafting lowers
    the caption rate by no more than the time of these probes.
    """

    def __init__(self) -> None:
        self._seconds: dict[bool, float] = {}
        self._windows = 0

    def choose(self) -> bool:
        """Return whether to caption the next window with proposers."""
        self._windows += 1
        for speculates in (True, False):
            if speculates not in self._seconds:
                return speculates
        return (self._seconds[True] <= self._seconds[False]) != (self._windows % PROBE_EVERY == 0)

    def observe(self, speculates: bool, seconds: float) -> None:
        """Record the time of a window."""
        before = self._seconds.get(speculates, seconds)
        self._seconds[speculates] = before + _STEP * (seconds - before)
