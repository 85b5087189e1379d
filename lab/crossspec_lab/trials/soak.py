"""`crossspec bench soak`: a dv network stream captioned for minutes; what is lost, and whose memory grows.

A quiet soak ends with a kill of the camera's software. With `--faults` a fault comes every half minute, each
in its turn. Every closed window must be reported, and captions must return without help.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from crossspec_lab.bench.report import tell
from crossspec_lab.trials.bars import MemoryWatch, is_complete, memory_bars
from crossspec_lab.trials.soak_processes import KILLED, MAX_AGAIN_S, Soak, SoakNode
from crossspec_ros.environment import ros_environment
from crossspec_ros.ros.run import run as run_node

EVERY_S = 30.0
"""Seconds from one fault to the next."""
MAX_RECONNECT_S = 2.0
MAX_BESIDE_MODELS_MS = 15.0
MAX_WAITING_MS = 1100.0
"""Longest wait before a caption begins: then the next window takes its place, and the lag is this and one
inference."""
_CALM_S = 5.0
"""Seconds before the end of a soak, whose windows may still be in work."""
_WARM_UP_S = 560.0
"""Time before memory counts, for until then the caption memory fills."""


def run(args: argparse.Namespace) -> int:
    """Print the figures and write them where requested; return 1 if a bar is missed."""
    os.environ.update(ros_environment(isolated=True))
    figures = soak(args.seconds, args.rate, args.models, args.faults)
    print(json.dumps(figures, indent=1))
    tell(args, figures)
    return 0 if figures["holds"] else 1


def soak(
    seconds: float, rate: float = 5.0, models: Path | None = None, faults: bool = False
) -> dict[str, Any]:
    """Return figures of `seconds` at `rate` million events a second and 25 frames, on Linux.

    `windows` and `events` compare what the writer sent until it was killed with what was counted and
    captioned, `rss` has each process's memory in MB and its slope in MB a minute, `beside_models_ms` the time
    from close to caption in which no model worked, and `reconnect_s` the time from the return of the killed
    writer to both of its streams being read again. `captioned` and `unreported` count all closed windows, and
    `again_s` has for each fault the longest time from its end to a caption. Exits with a sentence if the
    nodes do not start.
    """
    figures: dict[str, Any] = {"seconds": seconds, "rate_mev_s": rate}
    run_node(SoakNode, [], lambda node: figures.update(_measure(node, seconds, rate, models, faults)))
    if "rss" not in figures:
        # run_node returns after Ctrl-C.
        raise KeyboardInterrupt
    bars = {
        "nodes live": not figures["ended"],
        "reports": figures["unreported"] == 0 < figures["captioned"],
        "captions again": all(s is not None and s < MAX_AGAIN_S for s in figures["again_s"].values()),
        "the memory is saved": figures.pop("is_saved"),
        **({} if faults else _quiet_bars(figures)),
        **(memory_bars(figures["rss"]) if seconds > 2 * _WARM_UP_S else {}),
    }
    figures["missed_bars"] = [name for name, is_met in bars.items() if not is_met]
    figures["holds"] = not figures["missed_bars"]
    return figures


def _measure(
    node: SoakNode, seconds: float, rate: float, models: Path | None, faults: bool
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        memory_file = Path(folder) / "memory.json"
        running = Soak(stack, node, rate, models, memory=str(memory_file))
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
        reconnect_s = running.writer.lines[0]["picked_up_s"]
        stack.close()
        is_saved = memory_file.exists()
    return {
        **_compare({line["end_s"]: line for line in first.lines[2:-1]}, node.closed, node.reports),
        "writer_behind_s": max(line["behind_s"] for line in first.lines[1:]),
        "rss": watch.figures(_WARM_UP_S if seconds > 2 * _WARM_UP_S else seconds / 4),
        "reconnect_s": reconnect_s,
        **_outcomes([end for end in node.closed if end < end_s - _CALM_S], node.reports),
        "again_s": {
            name: max(known) if (known := [*filter(None, values)]) == values else None
            for name, values in waits_s.items()
        },
        "ended": {name: code for name, code in codes.items() if code is not None},
        "is_saved": is_saved,
    }


def _outcomes(ends_s: Iterable[float], reports: Mapping[float, Any]) -> dict[str, int]:
    """Count the closed windows, by their ends: captioned, reported otherwise, and not reported."""
    found = [reports.get(end) for end in ends_s]
    captioned = sum(report is not None and is_complete(report) for report in found)
    unreported = sum(report is None for report in found)
    return {
        "captioned": captioned,
        "reported_otherwise": len(found) - captioned - unreported,
        "unreported": unreported,
    }


def _quiet_bars(figures: Mapping[str, Any]) -> dict[str, bool]:
    windows, events = figures["windows"], figures["events"]
    queue, beside = figures["queue_ms"], figures["beside_models_ms"]
    return {
        "captions": windows["captioned"] > 0 and windows["missed"] == 0,
        "skipped windows": windows["skipped"] == 0,
        "queue": queue is None or queue["max"] < MAX_WAITING_MS,
        "losses": events["sent"] == events["counted"] and not figures["lost_packets"],
        "reconnection": figures["reconnect_s"] < MAX_RECONNECT_S,
        "beside models": beside is None or beside["median"] < MAX_BESIDE_MODELS_MS,
    }


def _compare(
    sent: Mapping[int, Mapping[str, Any]], closed: Mapping[float, Any], reports: Mapping[float, Any]
) -> dict[str, Any]:
    """Compare the windows that were sent with the closed and the reported ones, all by their ends."""
    windows = [closed[end] for end in sent if end in closed]
    reported = [reports[end] for end in sent if end in reports]
    stages = [
        {stage.name: stage.ms for stage in report.stages}
        for report in reported
        if report.outcome == "captioned"
    ]
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
            "counted": sum(window.events for window in windows),
        },
        "lost_packets": sum(window.lost_packets for window in windows),
        "caption_ms": _spread([each["total"] for each in stages]),
        "beside_models_ms": _spread([each["beside_models"] for each in stages]),
        "queue_ms": _spread([each["queue"] for each in stages]),
    }


def _spread(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"median": float(np.median(values)), "p90": float(np.percentile(values, 90)), "max": max(values)}
