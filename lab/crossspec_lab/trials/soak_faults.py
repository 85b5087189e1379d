"""`crossspec bench soak --faults`: what becomes of windows while drivers die, clocks step, disks are full.

A fault comes every half minute, each in its turn. A window that closed must be reported, whatever happened,
and after each fault captions must come again by themselves.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from rich.progress import track

from crossspec_lab.trials.bars import MemoryWatch, is_whole, missed, missed_bars
from crossspec_lab.trials.soak_setup import Soak, soak_setup

EVERY_S = 30.0
MOST_AGAIN_S = 10.0
"""From the end of a fault to the caption of the first whole window after it."""
_CALM_S, _AWAY_S, _STEP_S = 5.0, 2.0, 5
_DISK_S = 65.0
"""The caption memory is saved each minute."""
_WARM_UP_S = 560.0
_COUNTS = ("windows", "captioned", "told_otherwise", "unreported", "without_window_s")


def soak_faults(seconds: float, rate: float = 5.0, models: Path | None = None) -> dict[str, Any]:
    """Figures of `seconds` at `rate` million events a second and 25 frames, with faults; on Linux.

    Of each fault: how often, the windows that closed from its begin to the next fault's, how many of them
    were captioned from frames and events, reported as something else, or not reported, the seconds that had
    no window, and the longest time from its end to such a caption of a window that began after it. Raises
    RuntimeError when nothing starts.
    """
    with tempfile.TemporaryDirectory() as folder:
        memory_file = Path(folder) / "memory.json"
        with soak_setup(rate, models, memory=str(memory_file)) as soak:
            faults = _Faults(soak)
            watch = MemoryWatch({name: soak.nodes[name].pid for name in ("synchronizer", "captioner")})
            turns = [_meet(soak, name, faults.all[name]) for name in track(faults.in_turn(seconds), "faults")]
            watch.stop()
            end_s = math.floor(time.time())
            codes = {name: node.process.poll() for name, node in soak.nodes.items()}
            lines = list(soak.collector.lines)
        is_saved = memory_file.exists()
    ended = {name: code for name, code in codes.items() if code is not None}
    rss = watch.figures(_WARM_UP_S if seconds > 2 * _WARM_UP_S else seconds / 4)
    rows = told(turns, lines, end_s)
    total = {name: sum(row[name] for row in rows.values()) for name in ("windows", "captioned", "unreported")}
    again_s = [row["again_s"] for row in rows.values()]
    bars = {
        "nodes live": not ended,
        "reports": total["unreported"] == 0 < total["captioned"],
        "captions again": all(s is not None and s < MOST_AGAIN_S for s in again_s),
        "the memory is saved": is_saved,
    }
    misses = missed_bars(bars) + missed(rss)
    return {
        "seconds": seconds,
        "rate_mev_s": rate,
        **total,
        "faults": rows,
        "ended": ended,
        "rss": rss,
        "missed_bars": misses,
        "holds": not misses,
    }


class Turn(NamedTuple):
    """One fault: when it began, and how long after its end a window was captioned that began after it."""

    name: str
    began_s: float
    again_s: float | None


def _meet(soak: Soak, name: str, fault: Callable[[], None]) -> Turn:
    """Do it, and wait for captions and for the next fault's turn."""
    began_s = time.time()
    fault()
    ended_s = time.time()
    again_s: float | None = None
    looked = 0
    while (now_s := time.time()) < max(began_s + EVERY_S, ended_s + MOST_AGAIN_S):
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
    """By fault what became of the windows from its begin on; `end_s` is that of the last turn."""
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


class _Faults:
    """Faults of a soak; each returns once it is over."""

    def __init__(self, soak: Soak) -> None:
        self._soak, self._writer = soak, soak.serve()
        self.all: dict[str, Callable[[], None]] = {
            "none": lambda: None,
            "the camera's software is killed": self._kill_writer,
            "its clock steps 5 s ahead": lambda: self._writer.tell(str(_STEP_S)),
            "dv_camera is killed": self._kill_camera,
            "its clock steps 5 s back": lambda: self._writer.tell(str(-_STEP_S)),
            "a full disk": self._fill_disk,
        }

    def in_turn(self, seconds: float) -> list[str]:
        """Names of as many as there is time for, each once at least."""
        names = list(self.all)
        return [names[i % len(names)] for i in range(max(len(names), round(seconds / EVERY_S)))]

    def _kill_writer(self) -> None:
        self._writer.kill()
        time.sleep(_AWAY_S)
        self._writer = self._soak.serve()

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
