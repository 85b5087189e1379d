"""`crossspec replay`: run the nodes of a replay as child processes, which end with the command."""

from __future__ import annotations

import argparse
import importlib.util
import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import FrameType

from crossspec_ros.captioning.replay_setup import ReplaySetup
from crossspec_ros.children import start
from crossspec_ros.environment import ros_environment
from crossspec_ros.errors import InputError
from crossspec_ros.parameter import Value, ros_value
from crossspec_ros.ros.executables import MODULES

EVENTS, IMAGE = "event_camera/events", "camera/image_raw"
"""Topics that drivers and the player publish."""
INPUTS = {"events": EVENTS, "image": IMAGE}
"""Remappings of the synchronizer."""
_PATIENCE_S = {signal.SIGINT: 5.0, signal.SIGTERM: 10.0, signal.SIGKILL: 5.0}
"""Seconds to wait for the nodes after each signal. A captioner may have to write its caption memory."""


def run(args: argparse.Namespace) -> int:
    """Handle `crossspec replay` and return the exit code. Raises InputError before anything is started."""
    for package in ("rclpy", "crossspec_msgs"):
        if importlib.util.find_spec(package) is None:
            raise InputError(
                f"the nodes need ROS 2, but the package {package} is missing: run make setup, source your "
                f"workspace, or caption recordings without ROS by crossspec caption"
            )
    with closing(ReplaySetup(args.path, args.config, vars(args))) as setup:
        # Reads recording and models, because a missing one would fail in each node differently.
        _ = setup.synchronizer
    commands = {node: command(node, setup.file, values) for node, values in setup.nodes.items()}
    print(f"crossspec: replaying {args.path}; loading the models may take a minute", flush=True)
    return supervise(commands, ros_environment(isolated=args.isolated))


def command(
    node: str, params_file: Path, parameters: Mapping[str, Value], remaps: Mapping[str, str] = INPUTS
) -> list[str]:
    """Return the command that starts a node with this Python, these parameters and remappings."""
    made = [sys.executable, "-m", MODULES[node], "--ros-args"]
    made += ["--params-file", str(params_file)]
    for name, value in parameters.items():
        # JSON is YAML with unambiguous strings.
        made += ["-p", f"{name}:={json.dumps(ros_value(value), ensure_ascii=False)}"]
    for name, topic in remaps.items():
        made += ["-r", f"{name}:={topic}"]
    return made


def supervise(commands: Mapping[str, list[str]], environment: Mapping[str, str]) -> int:
    """Run the nodes until one of them ends. The last one is the player.

    Returns the exit code of the player or of the node that failed, and 130 after Ctrl-C or SIGTERM.
    """
    signals: list[int] = []

    def record(number: int, frame: FrameType | None) -> None:
        # An exception during the fork of a child would be lost.
        signals.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: signal.signal(number, record) for number in numbers}
    children: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for node, words in commands.items():
            if not signals:
                children[node] = start(words, environment)
        while not signals:
            for node, child in children.items():
                if (code := child.poll()) is None:
                    continue
                # A failed node has printed its reason.
                if code > 0 or node == [*commands][-1]:
                    return code
                how = f"was killed by signal {-code}" if code else "ended"
                print(f"crossspec: error: {node} {how} during the replay", file=sys.stderr)
                return 1
            time.sleep(0.05)
        return 130
    finally:
        for number in handlers:
            signal.signal(number, signal.SIG_IGN)
        _end([*children.values()])
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _end(children: list[subprocess.Popen[bytes]]) -> None:
    for number, patience_s in _PATIENCE_S.items():
        running = [child for child in children if child.poll() is None]
        for child in running:
            child.send_signal(number)
        deadline_s = time.monotonic() + patience_s
        while any(child.poll() is None for child in running) and time.monotonic() < deadline_s:
            time.sleep(0.01)
