"""What memory this process has, and whether it grows without end."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from statistics import median

from crossspec_ros.captioning.health import Reading
from crossspec_ros.telemetry.memory import resident_mb

MINUTE_S = 60.0
MINUTES = 10
MOST_MB_PER_MIN = 10.0


class MemoryWatch:
    """Compares the memory of each minute with that of the one before.

    Of ten minutes the median growth counts: models that are loaded meanwhile are one step, a leak is in most.
    """

    def __init__(self, read_mb: Callable[[], float] = resident_mb) -> None:
        self._read_mb = read_mb
        self._minutes: deque[float] = deque(maxlen=MINUTES + 1)
        self._last_s: float | None = None

    def reading(self, now_s: float) -> Reading:
        """The `memory` part of a node's diagnostics."""
        now_mb = self._read_mb()
        if self._last_s is None or now_s - self._last_s >= MINUTE_S:
            self._minutes.append(now_mb)
            self._last_s = now_s
        values = {"resident_mb": f"{now_mb:.0f}", **_gpu()}
        if len(self._minutes) <= MINUTES:
            return Reading(values=values)
        growth = median(later - earlier for earlier, later in pairwise(self._minutes))
        values["growth_mb_per_min"] = f"{growth:.1f}"
        if growth <= MOST_MB_PER_MIN:
            return Reading(values=values)
        told = (
            f"memory has grown by {growth:.0f} MB a minute for {MINUTES} minutes: restart the node before it "
            f"runs out, and report a leak"
        )
        return Reading(values=values, warnings={"growth": told})


def _gpu() -> dict[str, str]:
    # Whoever has not imported torch has nothing on a GPU, and need not wait for the import.
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return {}
    return {"gpu_mb": f"{torch.cuda.memory_reserved() / 1e6:.0f}"}
