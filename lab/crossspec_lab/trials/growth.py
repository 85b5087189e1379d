"""How the memory of processes grows while something is done to them."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

import numpy as np
import psutil

from crossspec_ros.telemetry.memory import resident_mb

MOST_MB, MOST_MB_PER_MIN = 1500.0, 1.0
FUZZ_WARM_SHARE = 0.3
"""Of the time that a process is fuzzed, before growth counts: buffers and memories fill until then."""
_PERIOD_S = 1.0


class MemoryWatch:
    """Looks at processes, by name, once a second until `stop`; one that has ended keeps its figures."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._rows: dict[str, list[tuple[float, float]]] = {name: [] for name in pids}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopping.set()
        self._thread.join()

    def figures(self, warm_s: float) -> dict[str, dict[str, float]]:
        """Of each process its last and its most memory in MB, and its growth in MB a minute.

        Growth counts after `warm_s`: queues and memories fill until then.
        """
        return {name: _figures(rows, warm_s) for name, rows in self._rows.items() if len(rows) > 1}

    def _look(self) -> None:
        while not self._stopping.wait(_PERIOD_S):
            for name, pid in list(self._pids.items()):
                try:
                    self._rows[name].append((time.monotonic(), resident_mb(pid)))
                except psutil.Error:
                    del self._pids[name]


def missed(figures: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The bars of memory that some process misses."""
    bars = {"memory": ("most_mb", MOST_MB), "growth": ("mb_per_min", MOST_MB_PER_MIN)}
    return [
        name
        for name, (figure, most) in bars.items()
        if any(process[figure] >= most for process in figures.values())
    ]


def _figures(rows: list[tuple[float, float]], warm_s: float) -> dict[str, float]:
    at_s, mb = np.array(rows).T
    counts = at_s >= at_s[0] + warm_s
    slope = float(np.polyfit(at_s[counts] / 60, mb[counts], 1)[0]) if counts.sum() > 2 else 0.0
    return {"mb": float(mb[-1]), "most_mb": float(mb.max()), "mb_per_min": slope}
