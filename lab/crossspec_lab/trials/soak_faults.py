"""Faults of a soak, and what becomes of windows while drivers die, clocks step and disks are full."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import psutil

from crossspec_lab.trials.bars import is_whole
from crossspec_lab.trials.soak_setup import Soak

MOST_AGAIN_S = 10.0
"""From the end of a fault to the caption of the first whole window after it."""
KILLED = "the camera's software is killed"
_CALM_S, _AWAY_S, _STEP_S = 5.0, 2.0, 5
_DISK_S = 65.0
"""The caption memory is saved each minute."""
_COUNTS = ("windows", "captioned", "told_otherwise", "unreported", "without_window_s")


class Turn(NamedTuple):
    """One fault: when it began, and how long after its end a window was captioned that began after it."""

    name: str
    began_s: float
    again_s: float | None


def meet(soak: Soak, name: str, fault: Callable[[], None], lasts_s: float) -> Turn:
    """Cause a fault; wait for captions and until so many seconds have passed since its begin."""
    began_s = time.time()
    fault()
    ended_s = time.time()
    again_s: float | None = None
    looked = 0
    while (now_s := time.time()) < max(began_s + lasts_s, ended_s + MOST_AGAIN_S):
        lines = soak.collector.lines[looked:]
        looked += len(lines)
        reports = (line for line in lines if "report_s" in line)
        if again_s is None and any(is_whole(r["values"]) and r["report_s"] - 1 >= ended_s for r in reports):
            again_s = now_s - ended_s
        time.sleep(0.05)
    return Turn(name, began_s, again_s)


def told(
    turns: Sequence[Turn], lines: Sequence[Mapping[str, Any]], end_s: float
) -> dict[str, dict[str, Any]]:
    """Return for each fault what became of the windows from its begin on; `end_s` is that of the last turn.

    It counts how often it came, the windows that closed from its begin to the next fault's, how many of them
    were captioned from frames and events, reported as something else, or not reported, and the seconds that
    had no window. `again_s` is the longest time from its end to such a caption of a window that began later.
    """
    closed = {line["closed_s"] for line in lines if "closed_s" in line}
    reports = {line["report_s"]: line for line in lines if "report_s" in line}
    rows: dict[str, dict[str, Any]] = {}
    ends_s = [turn.began_s for turn in turns[1:]] + [end_s - _CALM_S]
    for turn, until_s in zip(turns, ends_s, strict=True):
        seconds = range(math.ceil(turn.began_s), math.ceil(until_s))
        windows = [second for second in seconds if second in closed]
        captioned = sum(is_whole(reports[second]["values"]) for second in windows if second in reports)
        unreported = sum(second not in reports for second in windows)
        row = rows.setdefault(turn.name, {"times": 0, **dict.fromkeys(_COUNTS, 0), "again_s": 0.0})
        row["times"] += 1
        counts = (len(windows), captioned, len(windows) - captioned - unreported, unreported)
        for name, count in zip(_COUNTS, (*counts, len(seconds) - len(windows)), strict=True):
            row[name] += count
        if row["again_s"] is not None:
            row["again_s"] = None if turn.again_s is None else max(row["again_s"], turn.again_s)
    return rows


class Faults:
    """Faults of a soak; each returns once it is over."""

    def __init__(self, soak: Soak) -> None:
        self._soak, self.writer = soak, soak.serve()
        self.all: dict[str, Callable[[], None]] = {
            "none": lambda: None,
            KILLED: self._kill_writer,
            "its clock steps 5 s ahead": lambda: self.writer.tell(str(_STEP_S)),
            "dv_camera is killed": self._kill_camera,
            "its clock steps 5 s back": lambda: self.writer.tell(str(-_STEP_S)),
            "a full disk": self._fill_disk,
        }

    def _kill_writer(self) -> None:
        self.writer.kill()
        time.sleep(_AWAY_S)
        self.writer = self._soak.serve()

    def _kill_camera(self) -> None:
        self._soak.nodes["dv_camera"].kill()
        time.sleep(_AWAY_S)
        self._soak.start("dv_camera")

    def _fill_disk(self) -> None:
        captioner = psutil.Process(self._soak.nodes["captioner"].pid)
        soft, hard = captioner.rlimit(psutil.RLIMIT_FSIZE)
        captioner.rlimit(psutil.RLIMIT_FSIZE, (0, hard))
        time.sleep(_DISK_S)
        captioner.rlimit(psutil.RLIMIT_FSIZE, (soft, hard))
