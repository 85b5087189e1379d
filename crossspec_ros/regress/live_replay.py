"""Recordings replayed through the nodes, their reports, and how busy the machine was meanwhile."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from crossspec_ros.environment import ros_environment
from crossspec_ros.regress.golden import Setup, whole
from crossspec_ros.ros.graph import Process, replay_graph
from crossspec_ros.ros.supervisor import supervise

_LAST_LINES = 5
_MUCH_LOAD = 0.1
_IDLE = ("idle", "iowait")
_COUNTED_TWICE = ("guest", "guest_nice")
"""Linux has these in `user` and `nice` as well."""

Tick = Callable[[str], None]
"""Told what is going on, and which share of it is done where that is known."""


def silent(what: str) -> None:
    """A Tick that does nothing."""


class ReplayError(Exception):
    """The nodes did not get to the end; the message has the last they said."""


@dataclass(frozen=True)
class Reported:
    """A window that was captioned: its caption, ms from its last frame, and tokens per target pass."""

    caption: str
    total_ms: float
    first_token_ms: float
    acceptance: float


Reports = Mapping[int, Reported]
"""By the end of the window in ns; a window that was skipped, or got no caption, is missing."""


def live_replays(setup: Setup, rate: float, count: int, tick: Tick = silent) -> list[Reports]:
    """The reports of `count` replays through the nodes, in a ROS domain of their own.

    Raises ReplayError when a node fails.
    """
    environment = ros_environment(isolated=True)
    replays = []
    for number in range(count):
        tick(f"replaying through the nodes ({number + 1} of {count})")
        with tempfile.TemporaryDirectory() as folder:
            replays.append(replay(setup, rate, Path(folder), environment))
    return replays


def replay(setup: Setup, rate: float, folder: Path, environment: Mapping[str, str]) -> Reports:
    """Replay once at `rate` without waiting for captions, so that what falls behind is skipped.

    The nodes' output and the reports go to files in `folder`, which is empty. Raises ReplayError when a node
    fails, KeyboardInterrupt after Ctrl-C.
    """
    out, log = folder / "reports.jsonl", folder / "nodes.log"
    player = setup.parameters.nodes["dsec_player"] | {"rate": rate, "every_window": False, "loop": False}
    parameters = replace(setup.parameters, nodes={**setup.parameters.nodes, "dsec_player": player})
    heard = {"report": "captioner/report"}
    collector = Process("report_collector", parameters.file, {"out": str(out)}, heard)
    code = supervise([collector, *replay_graph(parameters)], environment, log)
    if code == 130:
        raise KeyboardInterrupt
    if code:
        last = log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        raise ReplayError(f"ended with code {code}: {' | '.join(last)}")
    return read_reports(out)


def read_reports(path: Path) -> Reports:
    """The captioned windows in a file of `ros.report_collector`; raises ReplayError when it is damaged."""
    try:
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return {whole(line["end_ns"]): _reported(line) for line in lines if line["outcome"] == "captioned"}
    # A disk may be full; RecursionError: a line is nested without end.
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ReplayError(f"has left damaged reports ({type(error).__name__}: {error})") from None


def _reported(line: Mapping[str, Any]) -> Reported:
    stages, caption = line["stages"], line["message"]
    # A caption from events alone begins at the close, and has no verified token before its end.
    total_ms = figure(stages.get("answer", stages["total"]))
    first_token_ms = figure(stages.get("answer_first", total_ms))
    if not isinstance(caption, str):
        raise TypeError(f"a caption is {caption!r}")
    return Reported(caption, total_ms, first_token_ms, figure(line["acceptance_length"]))


def figure(value: object) -> float:
    """A number that a ratio can be made of; raises ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e12:
        raise ValueError(f"a figure is {value!r}")
    return float(value)


class OtherLoad:
    """Measures from its creation on what this process and the children that it has waited for did not use."""

    def __init__(self) -> None:
        self._before = _times_s()

    def sentence(self) -> str:
        """The share of other programs, with a warning where it is large: latencies tell little then."""
        total, used, own = (now - then for now, then in zip(_times_s(), self._before, strict=True))
        share = max(0.0, used - own) / max(total, 1e-9)
        told = f"other programs used {share:.0%} of the machine"
        if share <= _MUCH_LOAD:
            return told
        return f"{told}: run it again when it is idle, latencies are not reliable"


def _times_s() -> tuple[float, float, float]:
    """Seconds that all cores had, that they worked or were taken away, and that they worked for us."""
    spent = psutil.cpu_times()._asdict()
    total = sum(seconds for kind, seconds in spent.items() if kind not in _COUNTED_TWICE)
    idle = sum(spent.get(kind, 0.0) for kind in _IDLE)
    return total, total - idle, sum(os.times()[:4])
