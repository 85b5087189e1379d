"""`crossspec fuzz messages`: nodes go on whatever is published to them, and no memory grows.

All nodes are real processes, with the tiny pair, in a ROS domain of their own: synchronizer and captioner, a
player beside them whose captions never come, and a dv_camera whose camera is not there.
"""

from __future__ import annotations

import random
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.progress import Progress

from crossspec_lab.trials.bars import MemoryWatch, missed, missed_bars
from crossspec_lab.trials.fuzz_publisher import PLAYED
from crossspec_lab.trials.processes import Child, free_ports
from crossspec_ros.captioning.params import Value
from crossspec_ros.drafting.memory_file import save
from crossspec_ros.drafting.proposer import Context, PassResult
from crossspec_ros.drafting.proposers.memory import CAPACITY, CaptionMemory
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.environment import ros_environment
from crossspec_ros.models.text_tokenizer import read_tokenizer, tokenizer_digest
from crossspec_ros.paths import share_dir, tiny_models
from crossspec_ros.ros.graph import CAPTIONER_REMAPS, Process, live_graph

_LOG = Path(tempfile.gettempdir()) / "crossspec_fuzz.log"
"""Log of the nodes."""
_QUESTION = "What is there to be seen?"
_TOKENS = 64
"""Tokens of the longest answers."""


def fuzz(count: int, seed: int) -> dict[str, Any]:
    """Publish `count` unsound messages; figures of the nodes' lives, captions and memory. On Linux.

    Raises RuntimeError where nothing starts.
    """
    environment = ros_environment(isolated=True)
    ended: dict[str, int] = {}
    with ExitStack() as stack:
        memory_file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "memory.json"
        fill_memory(memory_file)
        graph = live_graph("topics", question=_QUESTION, memory=str(memory_file))
        _LOG.unlink(missing_ok=True)

        def child(arguments: list[str]) -> Child:
            made = Child(arguments, _LOG, environment)
            stack.callback(made.end)
            return made

        nodes = {process.name: child(process.command()[1:]) for process in [*graph.processes, *_beside()]}
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
    return figures | {"missed_bars": missed_bars(bars) + missed(figures["rss"])}


def fill_memory(path: Path) -> None:
    """Write a caption memory of the tiny target that has all captions to the usual question that it can.

    It would fill while the nodes are fuzzed otherwise, and look like a leak.
    """
    tokenizer = read_tokenizer((tiny_models() / "target" / "tokenizer.json").read_bytes())
    memory, rng = CaptionMemory(), random.Random(0)
    for _ in range(CAPACITY):
        caption = tuple(rng.randrange(tokenizer.get_vocab_size()) for _ in range(_TOKENS))
        memory.observe(PassResult(Context(_QUESTION), DraftTree(), (), caption, True))
    save(memory, path, tokenizer_digest(tokenizer))


def _beside() -> list[Process]:
    config = share_dir() / "config"
    # Nobody reports its windows soundly.
    played: dict[str, Value] = {
        "path": str(share_dir() / "rosbags" / "synthetic_drive"),
        "caption_timeout_s": 86_400.0,
    }
    heard = {topic: f"player/{topic}" for topic in ("report", *CAPTIONER_REMAPS)}
    (port,) = free_ports(1)
    return [
        Process("dsec_player", config / "replay.yaml", played, heard | PLAYED | {"clock": "player/clock"}),
        Process("dv_camera", config / "live.yaml", {"source": f"tcp://127.0.0.1:{port}"}),
    ]
