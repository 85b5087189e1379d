"""The figures of a whole run: each stage's median and 90th percentile, and what the draft was good for."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping

import numpy as np

KEPT = 3600
"""Windows whose stages are remembered, so that a node may run for ever: an hour of them."""
_LATE = ("late_events", "late_frames")

_WITHOUT = ("skipped", "failed", "inactive", "nothing_seen", "unchanged", "unasked")
"""Counts of windows that have no caption."""
_USUAL = ("windows", "tokens", "target_passes")
"""Counts of every run; each other one tells of something that went wrong."""


class Summary:
    """Collects the stages of the last `KEPT` captioned windows and the totals of all.

    `brief()` or `table()` is what a run prints at its end.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._values: dict[str, deque[float]] = {}

    def add(self, latencies_ms: Mapping[str, float]) -> None:
        """Take one window's stages in milliseconds; a window may lack some of them."""
        for name, value in latencies_ms.items():
            self._values.setdefault(name, deque(maxlen=KEPT)).append(value)

    def count(self, **numbers: int) -> None:
        """Add to the run's totals: windows, skipped, tokens, target_passes, drafted, accepted, ..."""
        self.counts.update(numbers)

    def percentile(self, name: str, percent: float) -> float:
        """A percentile of a stage in milliseconds; KeyError when no window had it."""
        return float(np.percentile(self._values[name], percent))

    def table(self) -> str:
        """Plain text, a line per stage, then the totals."""
        width = max([len("stage (ms)"), *map(len, self._values)])
        lines = [f"{'stage (ms)':<{width}}  windows   median      p90      max"]
        for name, values in self._values.items():
            median, p90 = self.percentile(name, 50), self.percentile(name, 90)
            lines.append(f"{name:<{width}}  {len(values):7d}  {median:7.1f}  {p90:7.1f}  {max(values):7.1f}")
        return "\n".join([*lines, self.totals()])

    def brief(self) -> str:
        """One sentence about the run, with all that went wrong in it; empty when there was no window."""
        if not self.counts["windows"]:
            return ""
        counts = self.counts
        captioned = counts["windows"] - sum(counts[name] for name in _WITHOUT)
        text = f"{captioned} of {counts['windows']} seconds captioned"
        if captioned and "total" in self._values:
            text += f", {self.percentile('total', 50):.0f} ms after their end (median)"
        wrong = [
            f"{name.replace('_', ' ')} {number}"
            for name, number in counts.items()
            if number and name not in _USUAL and not name.startswith(("drafted by ", "accepted of "))
        ]
        return "; ".join([text, *wrong])

    def totals(self) -> str:
        """The end of it: a line of all counts, and one about what came too late, where anything did."""
        totals = [
            f"{name.replace('_', ' ')} {number}" for name, number in self.counts.items() if name not in _LATE
        ]
        if passes := self.counts["target_passes"]:
            totals.append(f"tokens per target pass {self.counts['tokens'] / passes:.2f}")
        lines = [", ".join(totals) or "no windows"]
        if any(self.counts[name] for name in _LATE):
            events, frames = (self.counts[name] for name in _LATE)
            lines.append(f"too late for their windows: {events} events, {frames} frames")
        return "\n".join(lines)
