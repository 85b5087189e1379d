"""`crossspec fuzz messages`: nodes go on whatever is published to them, and no memory grows.

Synchronizer and captioner are real processes on the tiny pair, in a ROS domain of their own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.progress import Progress

from crossspec_ros.bench.harness import tell
from crossspec_ros.bench.processes import end
from crossspec_ros.environment import ros_environment
from crossspec_ros.fuzz.memory_watch import MemoryWatch, missed
from crossspec_ros.ros.live_graph import live_graph
from crossspec_ros.ros.supervisor import start

_LOG = Path(tempfile.gettempdir()) / "crossspec_fuzz.log"
"""What the nodes said."""


def run(args: argparse.Namespace) -> int:
    """Print the figures and write them where asked; 1 where a bar is missed."""
    figures = fuzz(args.count, args.seed)
    print(json.dumps(figures, indent=1))
    tell(args, figures)
    return int(bool(figures["missed_bars"]))


def fuzz(count: int, seed: int) -> dict[str, Any]:
    """Publish `count` unsound messages; figures of the nodes' lives, captions and memory. On Linux.

    Raises RuntimeError where nothing starts.
    """
    environment = ros_environment(isolated=True)
    graph = live_graph("topics")
    for process in graph.processes:
        if process.name == "captioner":
            process.parameters["memory"] = "none"
    said: list[dict[str, Any]] = []
    ended: dict[str, int] = {}
    with ExitStack() as stack:
        log = stack.enter_context(_LOG.open("w"))

        def child(command: list[str], **options: Any) -> subprocess.Popen[str]:
            process = start(command, environment, stderr=log, text=True, **options)
            stack.callback(end, process)
            return process

        nodes = {process.name: child(process.command(), stdout=log) for process in graph.processes}
        command = [sys.executable, "-m", "crossspec_ros.ros.fuzz_publisher", str(count), str(seed)]
        publisher = child(command, stdout=subprocess.PIPE)
        listening = threading.Thread(target=_listen, args=(publisher, said), daemon=True)
        listening.start()
        memory = MemoryWatch({name: node.pid for name, node in nodes.items()})
        stack.callback(memory.stop)
        progress = stack.enter_context(Progress(transient=True))
        task = progress.add_task("publishing", total=count)
        while publisher.poll() is None and not ended:
            time.sleep(1.0)
            progress.update(task, completed=said[-1].get("sent", 0) if said else 0)
            ended = {name: node.returncode for name, node in nodes.items() if node.poll() is not None}
        listening.join(5)
    if not said:
        raise RuntimeError(f"the nodes did not come up: see {_LOG}")
    stretches = [line for line in said if "sent" in line]
    figures: dict[str, Any] = {
        "messages": stretches[-1]["sent"] if stretches else 0,
        "seed": seed,
        "targets": said[0]["targets"],
        "sound_windows": len(stretches),
        "captioned": sum(line["captioned"] for line in stretches),
        "ended": ended,
        "rss": memory.figures(),
    }
    bars = {
        "nodes live": not ended and figures["messages"] == count,
        "captions": figures["captioned"] == figures["sound_windows"] > 0,
    }
    return figures | {
        "missed_bars": [name for name, is_met in bars.items() if not is_met] + missed(figures["rss"])
    }


def _listen(publisher: subprocess.Popen[str], said: list[dict[str, Any]]) -> None:
    assert publisher.stdout is not None
    for line in publisher.stdout:
        if line.startswith("{"):
            said.append(json.loads(line))
