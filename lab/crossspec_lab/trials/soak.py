"""`crossspec bench soak`: losses and memory while a dv network stream is captioned for minutes.

A quiet soak ends with a kill of the camera's software. With `--faults` a fault comes every half minute, each
in its turn. Every closed window must be reported, and captions must return without help.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from crossspec_lab.bench.report import write_figures
from crossspec_lab.trials.processes import MemoryWatch, is_complete, memory_bars
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
_MAX_MOVED_S = 0.2
"""The first windows are moved: the average of the stamps' delay begins with a packet that may be late."""
_CALM_S = 5.0
"""Seconds before the end of a soak, whose windows may still be in work."""
_WARM_UP_S = 560.0
"""Time before memory counts, for until then the caption memory fills."""


def run(args: argparse.Namespace) -> int:
    """Print the figures and write them where requested; return 1 if a bar is missed."""
    os.environ.update(ros_environment(isolated=True))
    figures = soak(args.seconds, args.rate, args.models, args.faults)
    print(json.dumps(figures, indent=1))
    write_figures(args, figures)
    return int(bool(figures["missed_bars"]))


def soak(
    seconds: float, rate: float = 5.0, models: Path | None = None, faults: bool = False
) -> dict[str, Any]:
    """Return figures of `seconds` at `rate` million events and 25 frames a second, on Linux.

    - `windows`: counts of all closed windows.
    - `sent`: data of the first writer, and the counted and captioned part of them.
    - `rss`: memory of each process in MB, and its slope in MB a minute.
    - `beside_models_ms`: time from close to caption in which no model worked.
    - `reconnect_s`: time from the return of the killed writer until both streams are read again.
    - `again_s`: for each fault, the longest time from its end to a caption.

    Exits with a sentence if the nodes do not start.
    """
    figures: dict[str, Any] = {"seconds": seconds, "rate_mev_s": rate}
    run_node(SoakNode, [], lambda node: figures.update(_measure(node, seconds, rate, models, faults)))
    if "rss" not in figures:
        # run_node returns after Ctrl-C.
        raise KeyboardInterrupt
    windows, sent = figures["windows"], figures["sent"]
    moved_s = abs(sent["events"] - sent["counted_events"]) * sent["windows"] / max(sent["events"], 1)
    bars = {
        "nodes live": not figures["ended"],
        "reports": windows["unreported"] == 0 < windows["captioned"],
        "captions again": all(s is not None and s < MAX_AGAIN_S for s in figures["again_s"].values()),
        "the memory is saved": figures.pop("is_saved"),
    }
    if not faults:
        bars |= {
            "captions": sent["windows"] == sent["captioned"] > 0,
            "queue": figures["queue_ms"].get("max", 0.0) < MAX_WAITING_MS,
            "losses": moved_s < _MAX_MOVED_S and not sent["lost_packets"],
            "reconnection": figures["reconnect_s"] < MAX_RECONNECT_S,
            "beside models": figures["beside_models_ms"].get("median", 0.0) < MAX_BESIDE_MODELS_MS,
        }
    if seconds > 2 * _WARM_UP_S:
        bars |= memory_bars(figures["rss"])
    return figures | {"missed_bars": [name for name, is_met in bars.items() if not is_met]}


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
        **_counts({line["end_s"]: line["events"] for line in first.lines[2:-1]}, node, end_s - _CALM_S),
        "writer_behind_s": max(line["behind_s"] for line in first.lines[1:]),
        "rss": watch.figures(_WARM_UP_S if seconds > 2 * _WARM_UP_S else seconds / 4),
        "reconnect_s": reconnect_s,
        "again_s": {
            name: max(again) if (again := [*filter(None, values)]) == values else None
            for name, values in waits_s.items()
        },
        "ended": {name: code for name, code in codes.items() if code is not None},
        "is_saved": is_saved,
    }


def _counts(sent: Mapping[float, int], node: SoakNode, end_s: float) -> dict[str, Any]:
    """Count the windows that closed before `end_s`, and the windows in `sent`, events by window's end."""
    complete = {end for end, report in node.reports.items() if is_complete(report)}
    closed = {end for end in node.closed if end < end_s}
    windows = [node.closed[end] for end in sent if end in node.closed]
    captioned = [node.reports[end] for end in sent if end in node.reports]
    captioned = [report for report in captioned if report.outcome == "captioned"]
    stages = [{stage.name: stage.ms for stage in report.stages} for report in captioned]
    return {
        "windows": {
            "closed": len(closed),
            "captioned": len(closed & complete),
            "unreported": len(closed - node.reports.keys()),
        },
        "sent": {
            "windows": len(sent),
            "captioned": len(captioned),
            "events": sum(sent.values()),
            "counted_events": sum(window.events for window in windows),
            "lost_packets": sum(window.lost_packets for window in windows),
        },
        "caption_ms": _spread([each["total"] for each in stages]),
        "beside_models_ms": _spread([each["beside_models"] for each in stages]),
        "queue_ms": _spread([each["queue"] for each in stages]),
    }


def _spread(values: list[float]) -> dict[str, float]:
    names = ("median", 50), ("p90", 90), ("max", 100)
    return {name: float(np.percentile(values, share)) for name, share in names} if values else {}
