"""Memory of processes, and the bars that it must meet."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import psutil

from crossspec_ros.telemetry.process_memory import resident_mb

MAX_MB = 1500.0
MAX_MB_PER_MIN = 1.0
_PERIOD_S = 1.0


class MemoryWatch:
    """Reads the memory of processes, by name, once a second until `stop`."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._rows: dict[str, list[tuple[float, float]]] = {name: [] for name in pids}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Read no more."""
        self._stopping.set()
        self._thread.join()

    def figures(self, warm_s: float) -> dict[str, dict[str, float]]:
        """Return the last and the largest memory of each process in MB, and its growth in MB a minute.

        Growth counts after `warm_s`: queues and memories fill until then.
        """
        return {name: _figures(rows, warm_s) for name, rows in self._rows.items() if len(rows) > 1}

    def _read(self) -> None:
        while not self._stopping.wait(_PERIOD_S):
            for name, pid in list(self._pids.items()):
                try:
                    self._rows[name].append((time.monotonic(), resident_mb(pid)))
                except psutil.Error:
                    del self._pids[name]


def memory_bars(figures: Mapping[str, Mapping[str, float]]) -> dict[str, bool]:
    """Return whether all processes meet the bars of memory and of its growth."""
    return {
        "memory": all(one["most_mb"] < MAX_MB for one in figures.values()),
        "growth": all(one["mb_per_min"] < MAX_MB_PER_MIN for one in figures.values()),
    }


def is_complete(report: Any) -> bool:
    """Return whether a `WindowReport` is of a caption by the target from frames and events.

    A window without input counts as captioned, too, although a node behind it may be dead.
    """
    return report.caption.source == "target" and report.events > 0 and not report.missing_images


def _figures(rows: list[tuple[float, float]], warm_s: float) -> dict[str, float]:
    at_s, mb = np.array(rows).T
    counts = at_s >= at_s[0] + warm_s
    slope = float(np.polyfit(at_s[counts] / 60, mb[counts], 1)[0]) if counts.sum() > 2 else 0.0
    return {"mb": float(mb[-1]), "most_mb": float(mb.max()), "mb_per_min": slope}
