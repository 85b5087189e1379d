"""`crossspec bench soak`: a dv network stream captioned for minutes; what is lost, and whose memory grows.

With `--faults` it is another bench, that of `soak_faults`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from crossspec_lab.compare.harness import tell
from crossspec_lab.trials.bars import MOST_MB_PER_MIN, MemoryWatch, missed_bars
from crossspec_lab.trials.soak_faults import soak_faults
from crossspec_lab.trials.soak_setup import soak_setup

MOST_RECONNECT_S = 2.0
MOST_BESIDE_MODELS_MS = 15.0
MOST_WAITING_MS = 1100.0
"""Before its caption begins: then the next window, which may be a little late, takes its place, and the lag
is this and one inference."""
_WARM_UP_S = 560.0
"""Time before memory counts, for until then the caption memory fills."""
_AWAY_S, _AFTER_S = 2.0, 4.0


def run(args: argparse.Namespace) -> int:
    """Print the figures and write them where asked; 1 where a bar is missed."""
    if args.faults:
        figures = soak_faults(args.seconds, args.rate, args.models)
    else:
        figures = soak(args.seconds, args.rate, args.models)
    print(json.dumps(figures, indent=1))
    tell(args, figures)
    return 0 if figures["holds"] else 1


def soak(seconds: float, rate: float = 5.0, models: Path | None = None) -> dict[str, Any]:
    """Figures of `seconds` at `rate` million events a second and 25 frames, and of a killed writer; on Linux.

    `windows` and `events` compare what was sent in whole seconds with what was counted and captioned, `rss`
    has each process's memory in MB and its slope in MB a minute, `beside_models_ms` what no model took of
    the time from close to caption, `reconnect_s` the time from the return of the killed writer to both of its
    streams being read again. Raises RuntimeError when nothing starts.
    """
    with soak_setup(rate, models) as running:
        nodes, collector = running.nodes, running.collector
        writer = running.serve()
        pids = {name: node.pid for name, node in nodes.items()}
        memory = MemoryWatch(pids)
        time.sleep(seconds)
        memory.stop()
        # The last second's window is still being captioned.
        sent = {line["end_s"]: line for line in writer.lines[2:-1]}
        behind_s = max(line["behind_s"] for line in writer.lines[1:])
        writer.kill()
        time.sleep(_AWAY_S)
        again = running.serve()
        time.sleep(_AFTER_S)
        after_s = again.lines[-2]["end_s"]
    closed = {line["closed_s"]: line for line in collector.lines if "closed_s" in line}
    reports = {line["report_s"]: line for line in collector.lines if "report_s" in line}
    rss = memory.figures(_WARM_UP_S if seconds > 2 * _WARM_UP_S else seconds / 4)
    figures = _compare(sent, closed, reports) | {
        "seconds": seconds,
        "rate_mev_s": rate,
        "writer_behind_s": behind_s,
        "rss": rss,
        "reconnect_s": again.lines[0]["picked_up_s"],
        "reported_after_reconnect": after_s in reports,
    }
    windows, reconnect_s = figures["windows"], figures["reconnect_s"]
    growth = max(row["mb_per_min"] for row in rss.values())
    queue, beside = figures["queue_ms"], figures["beside_models_ms"]
    bars = {
        "captions": windows["captioned"] > 0 and windows["missed"] == 0,
        "skipped windows": windows["skipped"] == 0,
        "queue": queue is None or queue["max"] < MOST_WAITING_MS,
        "losses": figures["events"]["sent"] == figures["events"]["counted"] and not figures["lost_packets"],
        "reconnection": reconnect_s < MOST_RECONNECT_S and figures["reported_after_reconnect"],
        "beside models": beside is None or beside["median"] < MOST_BESIDE_MODELS_MS,
        "memory": seconds <= 2 * _WARM_UP_S or growth < MOST_MB_PER_MIN,
    }
    figures["missed_bars"] = missed_bars(bars)
    figures["holds"] = not figures["missed_bars"]
    return figures


def _compare(
    sent: Mapping[int, Mapping[str, Any]], closed: Mapping[float, Any], reports: Mapping[float, Any]
) -> dict[str, Any]:
    windows = [closed[end] for end in sent if end in closed]
    reported = [reports[end]["values"] for end in sent if end in reports]
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
