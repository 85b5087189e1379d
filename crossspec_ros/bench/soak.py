"""`crossspec bench soak`: a dv network stream captioned for minutes; what is lost, and whose memory grows.

With `--inference SECONDS` each caption takes so much longer: then windows must be skipped, and told.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from crossspec_ros.bench.harness import tell
from crossspec_ros.bench.processes import end, free_ports
from crossspec_ros.environment import ros_environment
from crossspec_ros.ros.graph import Process
from crossspec_ros.ros.live_graph import live_graph
from crossspec_ros.ros.supervisor import start
from crossspec_ros.telemetry.memory import resident_mb

MOST_MB_PER_MIN = 1.0
MOST_RECONNECT_S = 2.0
MOST_BESIDE_MODELS_MS = 15.0
MOST_WAITING_MS = 1100.0
"""Before its caption begins: then the next window, which may be a little late, takes its place, and the lag
is this and one inference."""
_LOG = Path(tempfile.gettempdir()) / "crossspec_soak.log"
"""What the processes of the last soak said."""
_WARM_UP_S, _FEW_WARM_UP_S = 560.0, 120.0
"""Before memory counts, for until then the caption memory fills; slow inference gives few captions."""
_STARTUP_S, _AWAY_S, _AFTER_S = 120.0, 2.0, 4.0


def run(args: argparse.Namespace) -> int:
    """Print the figures and write them where asked; 1 where a bar is missed."""
    figures = soak(args.seconds, args.rate, args.inference, args.models)
    print(json.dumps(figures, indent=1))
    tell(args, figures)
    return 0 if figures["holds"] else 1


def soak(
    seconds: float, rate: float = 5.0, inference_s: float = 0.0, models: Path | None = None
) -> dict[str, Any]:
    """Figures of `seconds` at `rate` million events a second and 25 frames, and of a killed writer; on Linux.

    `windows` and `events` compare what was sent in whole seconds with what was counted and captioned, `rss`
    has each process's memory in MB and its slope in MB a minute, `beside_models_ms` what no model took of
    the time from close to caption, `reconnect_s` the time from the return of the killed writer to both of its
    streams being read again. Raises RuntimeError when nothing starts.
    """
    environment = ros_environment(isolated=True)
    _LOG.unlink(missing_ok=True)
    ports = free_ports(2)
    graph = live_graph("dv_network", f"tcp://127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[1]}", models=models)
    for process in graph.processes:
        if process.name == "captioner":
            process.parameters["memory"] = "none"
    collect = ["-m", "crossspec_ros.ros.soak_collector", "--ros-args", "-r", "report:=captioner/report"]
    collect += ["-r", "window_closed:=synchronizer/window_closed"]
    serve = ["-m", "crossspec_ros.bench.soak_writer", *map(str, ports), "--rate", str(rate)]
    with ExitStack() as stack:

        def child(arguments: Sequence[str]) -> _Child:
            process = _Child([sys.executable, *arguments], environment)
            stack.callback(end, process.process)
            return process

        collector = child(collect)
        nodes = {process.name: child(_arguments(process, inference_s)) for process in graph.processes}
        _wait(lambda: bool(collector.lines), "synchronizer and captioner did not come up")
        writer = child(serve)
        _wait(lambda: bool(writer.lines), "dv_camera did not connect")
        memory = _watch(nodes, seconds)
        # The last second's window is still being captioned.
        sent = {line["end_s"]: line for line in writer.lines[2:-1]}
        behind_s = max(line["behind_s"] for line in writer.lines[1:])
        writer.process.kill()
        time.sleep(_AWAY_S)
        again = child(serve)
        _wait(lambda: bool(again.lines), "dv_camera did not connect again")
        time.sleep(_AFTER_S)
        after_s = again.lines[-2]["end_s"]
        time.sleep(inference_s)
    closed = {line["closed_s"]: line for line in collector.lines if "closed_s" in line}
    reports = {line["report_s"]: line for line in collector.lines if "report_s" in line}
    figures = _compare(sent, closed, reports) | {
        "seconds": seconds,
        "rate_mev_s": rate,
        "inference_s": inference_s,
        "writer_behind_s": behind_s,
        "rss": memory,
        "reconnect_s": again.lines[0]["picked_up_s"],
        "reported_after_reconnect": after_s in reports,
    }
    slow, windows, reconnect_s = inference_s > 0, figures["windows"], figures["reconnect_s"]
    is_long = seconds > (_FEW_WARM_UP_S if slow else 2 * _WARM_UP_S)
    queue, beside = figures["queue_ms"], figures["beside_models_ms"]
    bars = {
        "captions": windows["captioned"] > 0 and windows["missed"] == 0,
        "skipped windows": slow or windows["skipped"] == 0,
        "queue": queue is None or queue["max"] < MOST_WAITING_MS,
        "losses": figures["events"]["sent"] == figures["events"]["counted"] and not figures["lost_packets"],
        "reconnection": reconnect_s < MOST_RECONNECT_S and figures["reported_after_reconnect"],
        # A window that waits for another's models is beside its own.
        "beside models": slow or beside is None or beside["median"] < MOST_BESIDE_MODELS_MS,
        "memory": not is_long or max(row["mb_per_min"] for row in memory.values()) < MOST_MB_PER_MIN,
    }
    figures["missed_bars"] = [name for name, is_met in bars.items() if not is_met]
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


def _arguments(process: Process, inference_s: float) -> list[str]:
    arguments = process.command()[1:]
    if process.name == "captioner" and inference_s:
        arguments[1:2] = ["crossspec_ros.bench.slow_captioner", str(inference_s)]
    return arguments


class _Child:
    """A child and the lines of JSON that it has said so far."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.lines: list[dict[str, Any]] = []
        with _LOG.open("a") as log:
            self.process = start(command, environment, stdout=subprocess.PIPE, stderr=log, text=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.lines.append(json.loads(line))


def _watch(nodes: Mapping[str, _Child], seconds: float) -> dict[str, dict[str, float]]:
    """Memory of each node for so long, and of the processes that dv_camera reads in, by name."""
    pids = {name: node.process.pid for name, node in nodes.items()}
    readers = psutil.Process(pids["dv_camera"]).children()
    pids |= {f"dv_camera reader {i}": reader.pid for i, reader in enumerate(readers)}
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in pids}
    start_s = time.monotonic()
    while (now_s := time.monotonic() - start_s) < seconds:
        for name, pid in pids.items():
            samples[name].append((now_s, resident_mb(pid)))
        time.sleep(1.0)
    rows = {}
    for name, found in samples.items():
        at_s, mb = np.array(found).T
        counts = at_s >= (_WARM_UP_S if seconds > 2 * _WARM_UP_S else seconds / 4)
        rows[name] = {
            "mb": float(mb[-1]),
            "mb_per_min": float(np.polyfit(at_s[counts] / 60, mb[counts], 1)[0]),
        }
    return rows


def _wait(condition: Callable[[], bool], complaint: str) -> None:
    deadline_s = time.monotonic() + _STARTUP_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"{complaint} within {_STARTUP_S:g} s: see {_LOG}")
        time.sleep(0.05)
