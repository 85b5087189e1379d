"""`crossspec bench soak`: a dv network stream captioned for minutes; what is lost, and whose memory grows.

A quiet soak ends with a kill of the camera's software. With `--faults` a fault comes every half minute, each
in its turn. A window that closed must be reported, and captions must come again by themselves.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from crossspec_lab.compare.harness import tell
from crossspec_lab.trials.bars import MemoryWatch, missed, missed_bars
from crossspec_lab.trials.soak_faults import KILLED, MOST_AGAIN_S, Faults, Turn, meet, told
from crossspec_lab.trials.soak_setup import soak_setup

EVERY_S = 30.0
"""Seconds from one fault to the next."""
MOST_RECONNECT_S = 2.0
MOST_BESIDE_MODELS_MS = 15.0
MOST_WAITING_MS = 1100.0
"""Longest wait before a caption begins: then the next window takes its place, and the lag is this and one
inference."""
_WARM_UP_S = 560.0
"""Time before memory counts, for until then the caption memory fills."""


def run(args: argparse.Namespace) -> int:
    """Print the figures and write them where requested; 1 where a bar is missed."""
    figures = soak(args.seconds, args.rate, args.models, args.faults)
    print(json.dumps(figures, indent=1))
    tell(args, figures)
    return 0 if figures["holds"] else 1


def soak(
    seconds: float, rate: float = 5.0, models: Path | None = None, faults: bool = False
) -> dict[str, Any]:
    """Figures of `seconds` at `rate` million events a second and 25 frames, on Linux.

    `windows` and `events` compare what the writer sent until it was killed with what was counted and
    captioned, `rss` has each process's memory in MB and its slope in MB a minute, `beside_models_ms` what no
    model took of the time from close to caption, `reconnect_s` the time from the return of the killed writer
    to both of its streams being read again, and `faults` what `told` makes of each fault. Raises RuntimeError
    when nothing starts.
    """
    with tempfile.TemporaryDirectory() as folder:
        memory_file = Path(folder) / "memory.json"
        with soak_setup(rate, models, memory=str(memory_file)) as running:
            known = Faults(running)
            first, schedule = known.writer, [("none", seconds), (KILLED, MOST_AGAIN_S)]
            if faults:
                names = list(known.all)
                count = max(len(names), round(seconds / EVERY_S))
                schedule = [(names[i % len(names)], EVERY_S) for i in range(count)]
            # A process that a fault kills has no slope.
            watched = set(running.nodes) - ({"dv_camera"} if faults else set())
            watch = MemoryWatch({name: running.nodes[name].pid for name in watched})
            turns: list[Turn] = []
            for name, lasts_s in track(schedule, "soaking"):
                turns.append(meet(running, name, known.all[name], lasts_s))
            watch.stop()
            end_s = math.floor(time.time())
            codes = {name: node.process.poll() for name, node in running.nodes.items()}
            lines, reconnect_s = list(running.collector.lines), known.writer.lines[0]["picked_up_s"]
        is_saved = memory_file.exists()
    is_long = seconds > 2 * _WARM_UP_S
    rss = watch.figures(_WARM_UP_S if is_long else seconds / 4)
    rows = told(turns, lines, end_s)
    figures: dict[str, Any] = {
        "seconds": seconds,
        "rate_mev_s": rate,
        **_compare({line["end_s"]: line for line in first.lines[2:-1]}, lines),
        "writer_behind_s": max(line["behind_s"] for line in first.lines[1:]),
        "rss": rss,
        "reconnect_s": reconnect_s,
        "captioned": sum(row["captioned"] for row in rows.values()),
        "unreported": sum(row["unreported"] for row in rows.values()),
        "faults": rows,
        "ended": {name: code for name, code in codes.items() if code is not None},
    }
    again_s = [row["again_s"] for row in rows.values()]
    bars = {
        "nodes live": not figures["ended"],
        "reports": figures["unreported"] == 0 < figures["captioned"],
        "captions again": all(s is not None and s < MOST_AGAIN_S for s in again_s),
        "the memory is saved": is_saved,
    }
    if not faults:
        bars |= _quiet_bars(figures)
    figures["missed_bars"] = missed_bars(bars) + (missed(rss) if is_long else [])
    figures["holds"] = not figures["missed_bars"]
    return figures


def _quiet_bars(figures: Mapping[str, Any]) -> dict[str, bool]:
    windows, events = figures["windows"], figures["events"]
    queue, beside = figures["queue_ms"], figures["beside_models_ms"]
    return {
        "captions": windows["captioned"] > 0 and windows["missed"] == 0,
        "skipped windows": windows["skipped"] == 0,
        "queue": queue is None or queue["max"] < MOST_WAITING_MS,
        "losses": events["sent"] == events["counted"] and not figures["lost_packets"],
        "reconnection": figures["reconnect_s"] < MOST_RECONNECT_S,
        "beside models": beside is None or beside["median"] < MOST_BESIDE_MODELS_MS,
    }


def _compare(sent: Mapping[int, Mapping[str, Any]], lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Compare the windows that were sent, by their ends, with the collector's lines."""
    closed = {line["closed_s"]: line for line in lines if "closed_s" in line}
    reports = {line["report_s"]: line["values"] for line in lines if "report_s" in line}
    windows = [closed[end] for end in sent if end in closed]
    reported = [reports[end] for end in sent if end in reports]
    stages = [values["stages"] for values in reported if values["outcome"] == "captioned"]
    return {
        "windows": {
            "sent": len(sent),
            "closed": len(windows),
            "captioned": len(stages),
            "skipped": len(reported) - len(stages),
            "missed": len(sent) - len(reported),
        },
        "events": {
            "sent": sum(line["events"] for line in sent.values()),
            "counted": sum(window["events"] for window in windows),
        },
        "lost_packets": sum(window["lost_packets"] for window in windows),
        "caption_ms": _spread([each["total"] for each in stages]),
        "beside_models_ms": _spread([each["beside_models"] for each in stages]),
        "queue_ms": _spread([each["queue"] for each in stages]),
    }


def _spread(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"median": float(np.median(values)), "p90": float(np.percentile(values, 90)), "max": max(values)}
