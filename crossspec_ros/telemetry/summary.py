"""Figures of a run: median and 90th percentile of each stage, and accepted draft tokens."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping

import numpy as np

KEPT = 3600
"""Windows whose stages are kept, an hour. The bound lets a node run for ever."""
_LATE = ("late_events", "late_frames")

_WITHOUT = ("skipped", "failed", "inactive", "nothing_seen", "unchanged", "unasked")
"""Counts of windows without a caption."""
_NORMAL = ("windows", "tokens", "target_passes")
"""Counts of every run. All others are faults."""


class Summary:
    """Collects the stages of the last `KEPT` captioned windows, and totals of all windows.

    A run prints `brief()` or `table()` at its end.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._values: dict[str, deque[float]] = {}

    def add(self, latencies_ms: Mapping[str, float]) -> None:
        """Add a window's stages in ms. A window may lack some stages."""
        for name, value in latencies_ms.items():
            self._values.setdefault(name, deque(maxlen=KEPT)).append(value)

    def count(self, **numbers: int) -> None:
        """Add to the run's totals: windows, skipped, tokens, target_passes, drafted, accepted, ..."""
        self.counts.update(numbers)

    def percentile(self, name: str, percent: float) -> float:
        """Return a percentile of a stage in ms. Raises KeyError if no window had the stage."""
        return float(np.percentile(self._values[name], percent))

    def table(self) -> str:
        """Return a text with a line per stage, followed by the totals."""
        width = max([len("stage (ms)"), *map(len, self._values)])
        lines = [f"{'stage (ms)':<{width}}  windows   median      p90      max"]
        for name, values in self._values.items():
            median, p90 = self.percentile(name, 50), self.percentile(name, 90)
            lines.append(f"{name:<{width}}  {len(values):7d}  {median:7.1f}  {p90:7.1f}  {max(values):7.1f}")
        return "\n".join([*lines, self.totals()])

    def brief(self) -> str:
        """Return a sentence about the run and its faults, or an empty text without windows."""
        if not self.counts["windows"]:
            return ""
        counts = self.counts
        captioned = counts["windows"] - sum(counts[name] for name in _WITHOUT)
        text = f"{captioned} of {counts['windows']} seconds captioned"
        if captioned and "total" in self._values:
            text += f", {self.percentile('total', 50):.0f} ms after their end (median)"
        faults = [
            f"{name.replace('_', ' ')} {number}"
            for name, number in counts.items()
            if number and name not in _NORMAL and not name.startswith(("drafted by ", "accepted of "))
        ]
        return "; ".join([text, *faults])

    def totals(self) -> str:
        """Return a line of all counts, and a line about late events and frames, if any."""
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
