"""Event rate that the synchronizer node takes: its real process under a driver's load, on topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from crossspec_lab.compare.peak_memory import status_mb
from crossspec_lab.trials.processes import Child, cpu_seconds
from crossspec_ros.environment import ros_environment

RATES = (1.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0)
"""Million events per second; DSEC's cameras give 10.6 on average."""
_MOST_LATE_MS = 100.0
"""A driver that is further behind than this does not give the rate it should."""
MOST_BEHIND_MS = 1000.0
"""Queues hide for some seconds that a rate is too high; event images then come later and later."""


def measure(rates: Sequence[float] = RATES, seconds: float = 5.0) -> list[dict[str, Any]]:
    """A row for each rate in million events per second, each on a fresh synchronizer; for Linux.

    A row has what `event_load` says, the synchronizer's `cpu_share` of one core, its `peak_mb` of
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
    load_options = [str(rate), "--seconds", str(seconds)]
    with ExitStack() as stack:
        synchronizer = Child(["-m", "crossspec_ros.ros.synchronizer"], environment=environment)
        stack.callback(synchronizer.end)
        load = Child(["-m", "crossspec_lab.compare.event_load", *load_options], environment=environment)
        stack.callback(load.end)
        failure = f"{rate:g} Mev/s could not be measured: the load ended"
        load.wait(lambda: load.said, failure)  # it has found the synchronizer and begins
        before_s = cpu_seconds(synchronizer.pid)
        load.wait(lambda: load.lines, failure)
        if load.process.wait() or synchronizer.process.poll() is not None:
            raise RuntimeError(f"{rate:g} Mev/s could not be measured: a node has failed")
        row = load.lines[0]
        row["cpu_share"] = (cpu_seconds(synchronizer.pid) - before_s) / seconds
        row["peak_mb"] = status_mb("VmHWM", synchronizer.pid)
    row["holds"] = (
        row["publishing_late_ms"]["max"] <= _MOST_LATE_MS
        and row["event_image_ms"]["max"] <= MOST_BEHIND_MS
        and row["events_counted"] == row["events_sent"]
    )
    return row
