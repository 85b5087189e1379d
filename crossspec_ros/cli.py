"""The command `crossspec`. Subcommands load their modules only when they run, so that `--help` is at once."""

from __future__ import annotations

import argparse
import errno
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossspec_ros.arguments import captioned, checked, lazily, named_models, recorded
from crossspec_ros.errors import InputError, one_line
from crossspec_ros.paths import found
from crossspec_ros.plain_text import plain_text
from crossspec_ros.recordings.recording import FORMATS
from crossspec_ros.settings import DTYPES, ENGINES, ServeSettings

if TYPE_CHECKING:
    from crossspec_ros.arguments import Subparsers


class _Parser(argparse.ArgumentParser):
    """Takes options by their whole names, or --mode would be --models where there is no such option."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse has it, but what a subcommand does not know is told with the usage of that one."""
        known, unknown = super().parse_known_args(args, namespace)
        # Shells expand a pattern to all files that it fits.
        if more := [name for name in unknown if not name.startswith("-") and Path(name).exists()]:
            self.error(
                f"one recording is taken, and '{more[0]}' is another: run the command for each, or bring "
                f"bags together with `ros2 bag convert -i A -i B -o OPTIONS.yaml`"
            )
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return known, unknown


LABORATORY = {
    "bench": "measure",
    "experiments": "run the published experiments",
    "fuzz": "publish unsound messages, read unsound files",
    "synth": "write a drive through the synthetic world",
    "train": "train models",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code, 2 with one sentence for bad input or too little memory."""
    args = make_parser().parse_args(arguments)
    try:
        return int(args.handler(args) or 0)
    except InputError as error:
        print(f"crossspec: error: {error}", file=sys.stderr)
        return 2
    except MemoryError as error:
        told = f"memory runs out ({one_line(error)}): end other programs, or choose smaller models or dtypes"
        print(f"crossspec: error: {plain_text(told)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            told = "the disk is full: make room, and run the command again"
        elif error.filename is not None:
            told = (
                f"'{error.filename}' cannot be used ({error.strerror}): check that it is there, and that you "
                f"have the right to it"
            )
        else:
            raise
        print(f"crossspec: error: {plain_text(told)}", file=sys.stderr)
        return 2


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line; a parsed command's `handler` runs it."""
    parser: argparse.ArgumentParser = _Parser(
        prog="crossspec",
        description="Captions from event and RGB cameras over ROS 2, with every latency visible.",
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for register in (
        _replay,
        _caption,
        _doctor,
        _regress,
        _info,
        _convert,
        _serve,
        _laboratory,
    ):
        register(subparsers)
    return parser


def _laboratory(subparsers: Subparsers) -> None:
    """Add the laboratory's commands, or say of each that it is not installed."""
    with suppress(InputError):
        _load_laboratory("the laboratory")(subparsers)
        return
    for name, purpose in LABORATORY.items():
        parser = subparsers.add_parser(name, help=f"{purpose} (in the laboratory, not installed)")
        parser.add_argument("arguments", nargs=argparse.REMAINDER)
        parser.set_defaults(handler=lambda args: _load_laboratory(f"crossspec {args.command}"))


def _load_laboratory(feature: str) -> Any:
    """Return the function that adds the laboratory's commands, which is an entry point of its package.

    Raises InputError where it is not installed, without which there is no such `feature`.
    """
    for point in entry_points(group="crossspec_ros", name="commands"):
        try:
            return point.load()
        except ModuleNotFoundError as error:
            raise InputError(
                f"{feature} cannot be loaded ({error}): install the laboratory again, with "
                f"`pip install ./lab` in the repository of crossspec_ros"
            ) from error
    raise InputError(
        f"{feature} is in the laboratory, which is not installed here: run `pip install ./lab` in the "
        f"repository of crossspec_ros"
    )


def _replay(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "replay",
        help="caption a recording through the ROS 2 nodes",
        description="Plays a recording on ROS 2 topics and captions each of its seconds.",
    )
    captioned(parser)
    parser.add_argument("--rate", type=float, help="speed of the replay, 1 is that of the recording")
    parser.add_argument("--mode", help="prefill_hidden or autoregressive")
    parser.add_argument(
        "--generation", help="greedy, or published: sampled as the target's publisher says [greedy]"
    )
    parser.add_argument(
        "--isolated", action="store_true", help="keep to this host, in a ROS domain that no other run has"
    )
    parser.add_argument(
        "--stages",
        action="store_true",
        help="tell where the time of each caption went, and what each proposer had accepted; a token that "
        "two proposed counts for both",
    )
    parser.add_argument(
        "--compare",
        action="store_true",
        help="caption each window with the target alone as well, and tell how much sooner captions came",
    )
    parser.set_defaults(handler=lazily("crossspec_ros.ros.supervisor:run"))


def _caption(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "caption",
        help="caption a recording in code",
        description="Captions each second of a recording without ROS topics and not in real time, with the "
        "captions that replay gives.",
    )
    captioned(parser)
    parser.add_argument("--json", type=Path, help="write the captions here as well")
    parser.set_defaults(handler=checked(lazily("crossspec_ros.captioning.caption_command:run")))


def _doctor(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="tell which precision of the models fits on this machine, and what is wrong with its set-up",
        description="What machine this is, what each choice of precision and device needs on it, and what "
        "is wrong with its set-up. Without models it examines the shipped pair. Of models that are "
        "named by their hub ids it fetches the configs alone, and tells download and licence.",
    )
    parser.add_argument("--models", type=found, help="folder of the target and draft checkpoints")
    named_models(parser)
    parser.add_argument(
        "--measure", action="store_true", help="load the models in each choice that fits, and time them"
    )
    parser.add_argument("--json", type=Path, help="write the same here as well")
    parser.set_defaults(handler=checked(lazily("crossspec_ros.captioning.doctor:run")))


def _regress(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "regress",
        help="compare a recording's captions with goldens",
        description="Replays a recording in code and compares captions, stamps, windows and counts with "
        "goldens; exit code 1 if anything differs.",
    )
    captioned(parser)
    parser.add_argument("--golden", type=Path, help="folder of the goldens [PATH.golden]")
    parser.add_argument("--update", action="store_true", help="write the goldens")
    parser.add_argument("--junit", type=Path, help="write the result here as JUnit XML")
    parser.add_argument("--html", type=Path, help="write the result here as a page with images")
    parser.set_defaults(handler=checked(lazily("crossspec_ros.regress.regression:run")))


def _convert(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "convert",
        help="turn a recording into a rosbag2 (mcap)",
        description="Writes a rosbag2 (mcap). Ctrl-C leaves no bag.",
    )
    parser.add_argument("source", help=FORMATS)
    parser.add_argument("destination", type=Path, help="the bag directory to write")
    recorded(parser)
    parser.set_defaults(handler=lazily("crossspec_ros.recordings.convert:run"))


def _serve(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "serve",
        help="serve the target to captioners on other machines",
        description="Loads a target once and verifies for many robots, whose captioners name this machine as "
        "their target: grpc://HOST:PORT. Runs Ray Serve, which the extra [serve] installs.",
    )
    default = ServeSettings()
    device = default.models_device
    parser.add_argument(
        "--target", default="", help="folder, GGUF or hub id of the target; empty for the tiny one"
    )
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        default=default.models_dtype,
        help=f"numbers it is loaded in [{default.models_dtype}]",
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default=default.models_engine,
        help=f"library that runs its language model [{default.models_engine}]",
    )
    parser.add_argument(
        "--device",
        default=device,
        help="where it runs; auto is the first GPU or the CPU [auto]",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=9000,
        help="port to listen at, on all addresses; with TLS the next one is taken as well [9000]",
    )
    parser.add_argument(
        "--robots",
        type=int,
        default=default.robots,
        help=f"how many there is room for; each costs KV cache [{default.robots}]",
    )
    parser.add_argument(
        "--proposers",
        action="append",
        help=f"proposer of draft tokens; may be repeated [{', '.join(default.proposers)}]",
    )
    parser.add_argument(
        "--memories",
        default="",
        metavar="FOLDER",
        help="where each robot's captions are kept; empty: nowhere",
    )
    parser.add_argument(
        "--no-fleet-memory",
        dest="fleet_memory",
        action="store_false",
        help="let no robot draft from what others said",
    )
    parser.add_argument(
        "--idle-s",
        type=float,
        default=default.idle_s,
        help=f"silence after which a robot is let go, in seconds [{default.idle_s:g}]",
    )
    parser.add_argument(
        "--tokens", default="", metavar="FILE", help="lines ROBOT TOKEN; empty: any robot may come"
    )
    parser.add_argument("--tls-cert", type=Path, metavar="PEM", help="certificate, for grpcs")
    parser.add_argument("--tls-key", type=Path, metavar="PEM", help="its key")
    parser.add_argument(
        "--threads", type=int, default=default.threads, help=f"CPU threads of the target [{default.threads}]"
    )
    parser.add_argument("--verbose", action="store_true", help="show what Ray Serve and the replica log")
    parser.set_defaults(handler=lazily("crossspec_ros.serving.serve_command:run"))


def _info(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "info",
        help="tell what a recording holds and what is wrong with it",
        description="Length, windows, rates and what is wrong with a recording; then its topics, encodings, "
        "gaps and damage, and a fingerprint of its events.",
    )
    parser.add_argument("path", type=found, help=FORMATS)
    recorded(parser)
    parser.add_argument("--verbose", action="store_true", help="show zeros and raw times as well")
    parser.add_argument("--json", type=Path, help="write all of it here as well")
    parser.set_defaults(handler=checked(lazily("crossspec_ros.recordings.info:run")))


if __name__ == "__main__":
    sys.exit(main())
