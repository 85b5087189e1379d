"""The command `crossspec`. Subcommands load their modules only when they run, so that `--help` is at once."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from crossspec_ros.errors import InputError

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code, 2 with one sentence for bad input."""
    parser = argparse.ArgumentParser(
        prog="crossspec",
        description="Captions from event and RGB cameras over ROS 2, with every latency visible.",
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for register in (_replay, _convert):
        register(subparsers)
    args = parser.parse_args(arguments)
    try:
        return int(args.handler(args) or 0)
    except InputError as error:
        print(f"crossspec: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _replay(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "replay",
        help="caption a recording through the ROS 2 nodes",
        description="Plays a recording on ROS 2 topics and captions each of its seconds.",
    )
    parser.add_argument("path", type=Path, help="a DSEC sequence directory or a rosbag2 (sqlite3 or mcap)")
    parser.add_argument(
        "--models", type=Path, help="folder of the target and draft checkpoints [models/tiny]"
    )
    parser.add_argument("--question", help="what is asked about every window")
    parser.add_argument("--rate", type=float, help="speed of the replay, 1 is that of the recording")
    parser.add_argument("--mode", help="prefill_hidden or autoregressive")
    parser.add_argument("--config", type=Path, help="parameters of the nodes [config/replay.yaml]")
    parser.add_argument("--isolated", action="store_true", help="use a ROS domain that no other run has")
    parser.set_defaults(handler=_lazily("crossspec_ros.nodes.supervisor:run"))


def _convert(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("convert", help="turn a DSEC sequence into a rosbag2 (mcap)")
    parser.add_argument("source", type=Path, help="a DSEC sequence directory")
    parser.add_argument("destination", type=Path, help="the bag directory to write")
    convert = _lazily("crossspec_ros.events.convert:convert")
    parser.set_defaults(handler=lambda args: convert(args.source, args.destination))


def _lazily(function: str) -> Callable[..., object]:
    """A function named as `module:function`, imported when it is called."""

    def call(*args: object) -> object:
        module, _, name = function.partition(":")
        return getattr(importlib.import_module(module), name)(*args)

    return call


if __name__ == "__main__":
    sys.exit(main())
