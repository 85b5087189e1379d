"""`crossspec bench soak`: a dv network stream captioned for minutes; what is lost, and whose memory grows.

A quiet soak ends with a kill of the camera's software. With `--faults` a fault comes every half minute, each
in its turn. A window that closed must be reported, and captions must come again by themselves.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from crossspec_lab.bench.harness import tell
from crossspec_lab.trials.bars import MemoryWatch, is_whole, memory_bars
from crossspec_lab.trials.soak_processes import KILLED, MAX_AGAIN_S, Soak

EVERY_S = 30.0
"""Seconds from one fault to the next."""
MOST_RECONNECT_S = 2.0
MOST_BESIDE_MODELS_MS = 15.0
MOST_WAITING_MS = 1100.0
"""Longest wait before a caption begins: then the next window takes its place, and the lag is this and one
inference."""
_CALM_S = 5.0
"""Seconds before the end of a soak, whose windows may still be in work."""
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
    model took of the time from close to caption, and `reconnect_s` the time from the return of the killed
    writer to both of its streams being read again. `captioned` and `unreported` count all closed windows, and
    `again_s` has for each fault the longest time from its end to a caption. Raises RuntimeError when nothing
    starts.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        memory_file = Path(folder) / "memory.json"
        running = Soak(stack, rate, models, memory=str(memory_file))
        first, schedule = running.writer, [("none", seconds), (KILLED, MAX_AGAIN_S)]
        if faults:
            names = list(running.faults)
            count = max(len(names), round(seconds / EVERY_S))
            schedule = [(names[i % len(names)], EVERY_S) for i in range(count)]
        # A process that a fault kills has no slope.
        watched = set(running.nodes) - ({"dv_camera"} if faults else set())
        watch = MemoryWatch({name: running.nodes[name].pid for name in watched})
        waits_s: dict[str, list[float | None]] = {}
        for name, lasts_s in track(schedule, "soaking"):
            waits_s.setdefault(name, []).append(running.meet(name, lasts_s))
        watch.stop()
        end_s = time.time()
        codes = {name: node.process.poll() for name, node in running.nodes.items()}
        lines, reconnect_s = list(running.collector.lines), running.writer.lines[0]["picked_up_s"]
        stack.close()
        is_saved = memory_file.exists()
    is_long = seconds > 2 * _WARM_UP_S
    rss = watch.figures(_WARM_UP_S if is_long else seconds / 4)
    figures: dict[str, Any] = {
        "seconds": seconds,
        "rate_mev_s": rate,
        **_compare({line["end_s"]: line for line in first.lines[2:-1]}, lines),
        "writer_behind_s": max(line["behind_s"] for line in first.lines[1:]),
        "rss": rss,
        "reconnect_s": reconnect_s,
        **_outcomes(lines, end_s - _CALM_S),
        "again_s": {
            name: max(known) if (known := [*filter(None, values)]) == values else None
            for name, values in waits_s.items()
        },
        "ended": {name: code for name, code in codes.items() if code is not None},
    }
    bars = {
        "nodes live": not figures["ended"],
        "reports": figures["unreported"] == 0 < figures["captioned"],
        "captions again": all(s is not None and s < MAX_AGAIN_S for s in figures["again_s"].values()),
        "the memory is saved": is_saved,
    }
    if not faults:
        bars |= _quiet_bars(figures)
    if is_long:
        bars |= memory_bars(rss)
    figures["missed_bars"] = [name for name, is_met in bars.items() if not is_met]
    figures["holds"] = not figures["missed_bars"]
    return figures


def _outcomes(lines: list[dict[str, Any]], until_s: float) -> dict[str, int]:
    """Count the windows that closed before `until_s`: captioned, reported otherwise, and not reported."""
    reports = {line["report_s"]: line["values"] for line in lines if "report_s" in line}
    closed = [line["closed_s"] for line in lines if "closed_s" in line and line["closed_s"] < until_s]
    captioned = sum(end in reports and is_whole(reports[end]) for end in closed)
    unreported = sum(end not in reports for end in closed)
    return {
        "captioned": captioned,
        "reported_otherwise": len(closed) - captioned - unreported,
        "unreported": unreported,
    }


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
