"""Bars that must be met by processes that have a hard time: their memory, their reports."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import psutil

from crossspec_ros.telemetry.process_memory import resident_mb

MOST_MB = 1500.0
MOST_MB_PER_MIN = 1.0
_FUZZ_WARM_SHARE = 0.3
"""Share of the time that a process is fuzzed, before growth counts: buffers and memories fill until then."""
_PERIOD_S = 1.0


class MemoryWatch:
    """Looks at processes, by name, once a second until `stop`; one that has ended keeps its figures."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._rows: dict[str, list[tuple[float, float]]] = {name: [] for name in pids}
        self._begun_s, self._stopping = time.monotonic(), threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopping.set()
        self._thread.join()

    def figures(self, warm_s: float) -> dict[str, dict[str, float]]:
        """Last and most memory of each process in MB, and its growth in MB a minute.

        Growth counts after `warm_s`: queues and memories fill until then.
        """
        return {name: _figures(rows, warm_s) for name, rows in self._rows.items() if len(rows) > 1}

    def fuzzed(self) -> dict[str, dict[str, float]]:
        """Figures of processes that were fuzzed from the begin of the watch until now."""
        self.stop()
        return self.figures(_FUZZ_WARM_SHARE * (time.monotonic() - self._begun_s))

    def _look(self) -> None:
        while not self._stopping.wait(_PERIOD_S):
            for name, pid in list(self._pids.items()):
                try:
                    self._rows[name].append((time.monotonic(), resident_mb(pid)))
                except psutil.Error:
                    del self._pids[name]


def memory_bars(figures: Mapping[str, Mapping[str, float]]) -> dict[str, bool]:
    """Whether all processes meet the bars of memory and of its growth."""
    return {
        "memory": all(one["most_mb"] < MOST_MB for one in figures.values()),
        "growth": all(one["mb_per_min"] < MOST_MB_PER_MIN for one in figures.values()),
    }


def is_whole(values: Mapping[str, Any]) -> bool:
    """Whether a report, as `report_values` has it, is of a caption by the target from frames and events.

    A window of which nothing was seen counts as captioned, too: a node may be mute behind it.
    """
    return values["source"] == "target" and values["events"] > 0 and not values["missing_images"]


def _figures(rows: list[tuple[float, float]], warm_s: float) -> dict[str, float]:
    at_s, mb = np.array(rows).T
    counts = at_s >= at_s[0] + warm_s
    slope = float(np.polyfit(at_s[counts] / 60, mb[counts], 1)[0]) if counts.sum() > 2 else 0.0
    return {"mb": float(mb[-1]), "most_mb": float(mb.max()), "mb_per_min": slope}
