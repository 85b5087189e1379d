"""`crossspec replay`: runs the nodes of a replay as children that never outlive it."""

from __future__ import annotations

import argparse
import importlib.util
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import FrameType

from crossspec_ros.captioning.replay_parameters import MODEL_ARGUMENTS, replay_parameters
from crossspec_ros.children import start
from crossspec_ros.environment import ros_environment
from crossspec_ros.errors import InputError
from crossspec_ros.recordings.options import ReadOptions
from crossspec_ros.ros.graph import Process, replay_graph

INTERRUPT_S = 5.0
"""Seconds that the children get to end after SIGINT."""
TERMINATE_S = 10.0
"""Seconds that they get after SIGTERM: writing a memory file takes time."""
KILL_S = 5.0


def run(args: argparse.Namespace) -> int:
    """Handler of `crossspec replay`; returns the exit code, raises InputError before anything is started."""
    placed = {name: getattr(args, name) for name in MODEL_ARGUMENTS}
    parameters = replay_parameters(
        args.path,
        args.models,
        args.question,
        args.rate,
        args.mode,
        args.config,
        asked=ReadOptions.of(vars(args)),
        **placed,
    )
    shown = {name: True for name in ("stages", "compare") if getattr(args, name)}
    parameters.nodes["captioner"].update(shown)
    environment = ros_environment(isolated=args.isolated)
    print(f"crossspec: replaying {args.path}; loading the models takes a few seconds", flush=True)
    return supervise(replay_graph(parameters), environment)


def supervise(processes: Sequence[Process], environment: Mapping[str, str], log: Path | None = None) -> int:
    """Run all processes until the last of them, the player, has ended well or any has failed.

    What they say goes to the file `log` where one is named.

    Returns the player's exit code, the failed one's, or 130 after Ctrl-C or SIGTERM. No child is left then.
    Raises InputError where ROS is missing or cannot start, for each node would only say so in its own way.
    """
    for package in ("rclpy", "crossspec_msgs"):
        if importlib.util.find_spec(package) is None:
            raise InputError(
                f"the nodes need ROS 2, but there is no {package}: run make setup, source your workspace, or "
                f"caption recordings without ROS by crossspec caption"
            )
    signals: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        # An exception would be lost where it comes while a child is forked.
        signals.append(number)

    handlers = {
        number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    children: list[subprocess.Popen[bytes]] = []
    try:
        with log.open("ab") if log else nullcontext() as out:
            for process in processes:
                if not signals:
                    children.append(start(process.command(), environment, stdout=out, stderr=out))
        return 130 if signals else _watch(processes, children, signals)
    finally:
        for number in handlers:
            signal.signal(number, signal.SIG_IGN)
        _end(children)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _watch(
    processes: Sequence[Process], children: Sequence[subprocess.Popen[bytes]], signals: Sequence[int]
) -> int:
    while not signals:
        for process, child in zip(processes, children, strict=True):
            code = child.poll()
            if code is None:
                continue
            if child is children[-1]:
                return code
            if code > 0:
                return code  # it has said why
            why = f"was ended by signal {-code}" if code else "ended"
            print(f"crossspec: error: {process.name} {why} during the replay", file=sys.stderr)
            return 1
        time.sleep(0.05)
    return 130


def _end(children: Sequence[subprocess.Popen[bytes]]) -> None:
    for number, patience_s in (
        (signal.SIGINT, INTERRUPT_S),
        (signal.SIGTERM, TERMINATE_S),
        (signal.SIGKILL, KILL_S),
    ):
        running = [child for child in children if child.poll() is None]
        for child in running:
            child.send_signal(number)
        deadline_s = time.monotonic() + patience_s
        while any(child.poll() is None for child in running) and time.monotonic() < deadline_s:
            time.sleep(0.01)
