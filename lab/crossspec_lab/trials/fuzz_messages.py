"""`crossspec fuzz messages`: nodes go on whatever is published to them, and no memory grows.

All nodes are real processes, with the tiny pair, in a ROS domain of their own: synchronizer and captioner, a
player beside them whose captions never come, and a dv_camera whose camera is not there.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.progress import Progress

from crossspec_lab.trials.bars import MemoryWatch, memory_bars
from crossspec_lab.trials.fuzz_publisher import PLAYED
from crossspec_lab.trials.processes import Child, free_ports
from crossspec_ros.environment import ros_environment
from crossspec_ros.parameter import Value
from crossspec_ros.paths import share_dir
from crossspec_ros.ros.replay import command
from crossspec_ros.settings import EVENT_TYPES

_LOG = Path(tempfile.gettempdir()) / "crossspec_fuzz.log"
"""Log of the nodes."""


def fuzz(count: int, seed: int) -> dict[str, Any]:
    """Publish `count` unsound messages; figures of the nodes' lives, captions and memory. On Linux.

    Raises RuntimeError where nothing starts.
    """
    environment = ros_environment(isolated=True)
    ended: dict[str, int] = {}
    with ExitStack() as stack:
        # A memory fills for hours, which would look like a leak.
        live = share_dir() / "config" / "live.yaml"
        # Types are set, because nobody publishes before the fuzzer has found who listens.
        types = {"event_type": EVENT_TYPES[0], "image_transport": "raw"}
        commands = {
            "synchronizer": command("synchronizer", live, types),
            "captioner": command("captioner", live, {"memory": "none"}),
            **_beside(),
        }
        _LOG.unlink(missing_ok=True)

        def child(arguments: list[str]) -> Child:
            made = Child(arguments, _LOG, environment)
            stack.callback(made.end)
            return made

        nodes = {name: child(words[1:]) for name, words in commands.items()}
        publisher = child(["-m", "crossspec_lab.trials.fuzz_publisher", str(count), str(seed)])
        memory = MemoryWatch({name: node.pid for name, node in nodes.items()})
        progress = stack.enter_context(Progress(transient=True))
        task = progress.add_task("publishing", total=count)
        while publisher.process.poll() is None and not ended:
            time.sleep(1.0)
            progress.update(task, completed=max((line.get("sent", 0) for line in publisher.lines), default=0))
            codes = {name: node.process.poll() for name, node in nodes.items()}
            ended = {name: code for name, code in codes.items() if code is not None}
        rss = memory.fuzzed()
        said = publisher.heard()
    if not said:
        raise RuntimeError(f"the nodes did not come up: see {_LOG}")
    stretches = [line for line in said if "sent" in line]
    figures: dict[str, Any] = {
        "messages": stretches[-1]["sent"] if stretches else 0,
        "seed": seed,
        "targets": said[0]["targets"],
        "sound_windows": len(stretches),
        "captioned": sum(line["captioned"] for line in stretches),
        "diagnosed": sum(line["diagnosed"] for line in stretches),
        "failed_callbacks": said[-1].get("failed_callbacks"),
        "ended": ended,
        "rss": rss,
    }
    bars = {
        "nodes live": not ended and figures["messages"] == count,
        "captions": figures["captioned"] == figures["sound_windows"] > 0,
        "diagnostics": figures["diagnosed"] == figures["sound_windows"],
    }
    bars |= memory_bars(figures["rss"])
    return figures | {"missed_bars": [name for name, is_met in bars.items() if not is_met]}


def _beside() -> dict[str, list[str]]:
    config = share_dir() / "config"
    # Nobody reports its windows soundly.
    played: dict[str, Value] = {
        "path": str(share_dir() / "rosbags" / "synthetic_drive"),
        "caption_timeout_s": 86_400.0,
    }
    heard = {"captioner/report": "player/report", "synchronizer/frame": "player/frame"}
    (port,) = free_ports(1)
    return {
        "dsec_player": command("dsec_player", config / "replay.yaml", played, heard | PLAYED),
        "dv_camera": command("dv_camera", config / "live.yaml", {"source": f"tcp://127.0.0.1:{port}"}),
    }
