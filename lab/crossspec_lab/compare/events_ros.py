"""How many events a second the synchronizer node takes: its real process under a driver's load, on topics."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from crossspec_lab.compare.peak_memory import status_mb
from crossspec_lab.trials.processes import cpu_seconds, end
from crossspec_ros.children import start
from crossspec_ros.environment import ros_environment

RATES = (1.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0)
"""Million events per second; DSEC's cameras give 10.6 on average."""
_MOST_LATE_MS = 100.0
"""A driver that is further behind than this does not give the rate it should."""
MOST_BEHIND_MS = 1000.0
"""Queues hide for some seconds that a rate is too high; event images then come later and later."""


def measure(rates: Sequence[float] = RATES, seconds: float = 5.0) -> list[dict[str, Any]]:
    """A row for each rate in million events per second, each on a fresh synchronizer; for Linux.

    A row has what `ros.event_load` says, the synchronizer's `cpu_share` of one core, its `peak_mb` of
    memory, and `holds`: whether the load was given as it should, every event was counted and no event image
    came a second late. Raises RuntimeError when a rate cannot be measured.
    """
    environment = ros_environment(isolated=True)
    return [_measure(rate, seconds, environment) for rate in rates]


def highest(rows: Sequence[Mapping[str, Any]]) -> float:
    """The highest rate that holds, as all lower ones do; 0 where none does."""
    best = 0.0
    for row in sorted(rows, key=lambda row: row["rate_mev_s"]):
        if not row["holds"]:
            break
        best = row["rate_mev_s"]
    return best


def _measure(rate: float, seconds: float, environment: Mapping[str, str]) -> dict[str, Any]:
    synchronizer = _start(["synchronizer"], environment)
    load = _start(["event_load", str(rate), "--seconds", str(seconds)], environment, stdout=subprocess.PIPE)
    try:
        assert load.stdout is not None
        load.stdout.readline()  # it has found the synchronizer and begins
        before_s = cpu_seconds(synchronizer.pid)
        output, _ = load.communicate()
        if load.returncode or synchronizer.poll() is not None:
            raise RuntimeError(f"{rate:g} Mev/s could not be measured: see what the nodes said above")
        row: dict[str, Any] = json.loads(output)
        row["cpu_share"] = (cpu_seconds(synchronizer.pid) - before_s) / seconds
        row["peak_mb"] = status_mb("VmHWM", synchronizer.pid)
    finally:
        for process in (load, synchronizer):
            end(process)
    row["holds"] = (
        row["publishing_late_ms"]["max"] <= _MOST_LATE_MS
        and row["event_image_ms"]["max"] <= MOST_BEHIND_MS
        and row["events_counted"] == row["events_sent"]
    )
    return row


def _start(command: Sequence[str], environment: Mapping[str, str], **options: Any) -> subprocess.Popen[str]:
    node, *arguments = command
    return start(
        [sys.executable, "-m", f"crossspec_ros.ros.{node}", *arguments], environment, text=True, **options
    )
