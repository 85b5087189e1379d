"""The command `crossspec`. Subcommands load their modules only when they run, so that `--help` is at once."""

from __future__ import annotations

import argparse
import errno
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossspec_ros.errors import InputError
from crossspec_ros.recordings.recording import FORMATS

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


class _Parser(argparse.ArgumentParser):
    """Takes options by their whole names, or --mode would be --models where there is no such option."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code, 2 with one sentence for bad input."""
    args = make_parser().parse_args(arguments)
    try:
        return int(args.handler(args) or 0)
    except InputError as error:
        print(f"crossspec: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        print("crossspec: error: the disk is full: make room, and run the command again", file=sys.stderr)
        return 2


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line; a parsed command's `handler` runs it."""
    parser: argparse.ArgumentParser = _Parser(
        prog="crossspec",
        description="Captions from event and RGB cameras over ROS 2, with every latency visible.",
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for register in (_replay, _caption, _doctor, _regress, _info, _synth, _convert, _train, _bench):
        register(subparsers)
    return parser


def _replay(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "replay",
        help="caption a recording through the ROS 2 nodes",
        description="Plays a recording on ROS 2 topics and captions each of its seconds.",
    )
    _captioned(parser)
    parser.add_argument("--rate", type=float, help="speed of the replay, 1 is that of the recording")
    parser.add_argument("--mode", help="prefill_hidden or autoregressive")
    parser.add_argument("--isolated", action="store_true", help="use a ROS domain that no other run has")
    parser.add_argument("--stages", action="store_true", help="tell where the time of each caption went")
    parser.add_argument(
        "--compare",
        action="store_true",
        help="caption each window with the target alone as well, and tell how much sooner captions came",
    )
    parser.set_defaults(handler=_lazily("crossspec_ros.ros.supervisor:run"))


def _caption(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "caption",
        help="caption a recording in code, if need be with one model in memory",
        description="Captions each second of a recording without ROS topics and not in real time, with the "
        "captions that replay gives.",
    )
    _captioned(parser)
    parser.add_argument(
        "--drafts",
        type=Path,
        metavar="FILE",
        help="load one model at a time: the draft, which writes here what it has to say unless this is there "
        "already, then the target",
    )
    parser.add_argument("--json", type=Path, help="write the captions here as well")
    parser.set_defaults(handler=_checked(_lazily("crossspec_ros.captioning.caption_command:run")))


def _captioned(parser: argparse.ArgumentParser) -> None:
    """What is captioned and with what."""
    parser.add_argument("path", type=Path, help=FORMATS)
    _images(parser)
    _topics(parser)
    parser.add_argument(
        "--models", type=Path, help="folder of the target and draft checkpoints [models/tiny]"
    )
    _named_models(parser)
    parser.add_argument("--dtype", help="float32, bf16, int8 or nf4, the numbers of both models [float32]")
    parser.add_argument("--device", help="where the models run: auto, cpu, cuda or cuda:N [auto]")
    parser.add_argument("--draft-device", help="where the draft runs [where the target does]")
    parser.add_argument("--question", help="what is asked about every window")
    parser.add_argument("--config", type=Path, help="parameters of the nodes [config/replay.yaml]")


def _images(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--images",
        type=Path,
        metavar="FOLDER",
        help="PNG or JPEG files to take as its images, with their times in a timestamps.txt there",
    )


def _topics(parser: argparse.ArgumentParser) -> None:
    """Which of a recording's topics are played."""
    parser.add_argument("--events-topic", default="", metavar="TOPIC", help="events of a bag [see info]")
    parser.add_argument("--image-topic", default="", metavar="TOPIC", help="images of a bag [see info]")


def _named_models(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", help="folder or hub id of the target alone [that in --models]")
    parser.add_argument("--draft", help="folder of the draft alone [that in --models]")


def _doctor(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="tell which precision of the models fits on this machine, and what is wrong with its set-up",
        description="What machine this is, what each choice of precision and device needs on it, and what "
        "is wrong with its set-up. Without models it speaks of the released 7B models.",
    )
    parser.add_argument("--models", type=Path, help="folder of the target and draft checkpoints")
    _named_models(parser)
    parser.add_argument(
        "--measure", action="store_true", help="load the models in each choice that fits, and time them"
    )
    parser.add_argument("--json", type=Path, help="write the same here as well")
    parser.set_defaults(handler=_checked(_lazily("crossspec_ros.captioning.doctor:run")))


def _regress(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "regress",
        help="compare a recording's captions with goldens, and latencies with a baseline",
        description="Replays a recording in code and compares captions, stamps, windows and counts with "
        "goldens; exit code 1 if anything differs.",
    )
    _captioned(parser)
    parser.add_argument("--golden", type=Path, help="folder of the goldens and the baseline [PATH.golden]")
    parser.add_argument(
        "--live", action="store_true", help="replay through the nodes too and compare with the baseline"
    )
    parser.add_argument(
        "--update", action="store_true", help="write the goldens, with --live also the baseline"
    )
    parser.add_argument("--rate", type=float, default=1.0, help="speed of a new baseline's replays [1]")
    parser.add_argument("--repeats", type=_at_least(1), default=3, help="replays of a new baseline [3]")
    parser.add_argument(
        "--latency", type=float, default=1.2, help="most that latencies may be of the baseline's [1.2]"
    )
    parser.add_argument(
        "--acceptance", type=float, default=0.85, help="least that acceptance may be of the baseline's [0.85]"
    )
    parser.add_argument(
        "--dropped", type=float, default=0.0, help="share of windows that may be dropped in addition [0]"
    )
    parser.add_argument("--junit", type=Path, help="write the result here as JUnit XML")
    parser.add_argument("--html", type=Path, help="write the result here as a page with images and timelines")
    parser.set_defaults(handler=_checked(_lazily("crossspec_ros.regress.command:run")))


def _convert(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "convert",
        help="turn a recording or a live dv stream into a rosbag2 (mcap)",
        description="Writes a rosbag2 (mcap). Ctrl-C completes that of a live stream and discards any other.",
    )
    parser.add_argument(
        "source",
        help=f"{FORMATS}, or tcp://HOST:PORT of dv events",
    )
    parser.add_argument("destination", type=Path, help="the bag directory to write")
    _topics(parser)
    parser.add_argument(
        "--aligned", action="store_true", help="bring a DSEC sequence's events and frames into one view"
    )
    _images(parser)
    parser.add_argument("--frames", metavar="HOST:PORT", help="where frames of a live stream are served")
    parser.add_argument("--seconds", type=_seconds, help="how long to record a live stream [until it ends]")
    parser.set_defaults(handler=_lazily("crossspec_ros.recordings.convert:run"))


def _synth(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "synth", help="write a drive through the synthetic world as a DSEC sequence"
    )
    parser.add_argument("out", type=Path, help="the directory to write")
    parser.add_argument("--seconds", type=int, default=9, help="length of the drive [9]")
    parser.add_argument(
        "--seed", type=int, default=1_000_001, help="which drive; below 1000000 are training's [1000001]"
    )
    parser.set_defaults(handler=_lazily("crossspec_ros.training.synth:run"))


def _train(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("train", help="train models")
    models = parser.add_subparsers(required=True, metavar="MODELS")
    tiny = models.add_parser(
        "tiny", help="the tiny pair on the synthetic world, on two CPU cores in under an hour"
    )
    tiny.add_argument(
        "--out", type=Path, default=Path("build/models"), help="folder for the models [build/models]"
    )
    tiny.add_argument(
        "--work",
        type=Path,
        default=Path("build/tiny"),
        help="folder for windows and checkpoints [build/tiny]",
    )
    tiny.add_argument("--shrink", type=int, default=1, help="divide data and steps, to try the command [1]")
    tiny.set_defaults(handler=_lazily("crossspec_ros.training.tiny:run"))


def _bench(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("bench", help="measure")
    what = parser.add_subparsers(required=True, metavar="WHAT")

    def add(name: str, purpose: str) -> argparse.ArgumentParser:
        bench = what.add_parser(name, help=purpose, description=purpose)
        measure = _lazily(f"crossspec_ros.bench.{name}:run")
        bench.set_defaults(handler=_checked(measure))
        return bench

    captions = add("captions", "accuracy and draft acceptance on held-out drives")
    latency = add("latency", "from a window's close to its caption, against other decoders, in real time")
    lossless = add("lossless", "whether captions are the target's own: greedy, bfloat16, sampling")
    for bench, windows in ((captions, 200), (latency, 200), (lossless, 500)):
        bench.add_argument("--windows", type=int, default=windows, help=f"held-out windows [{windows}]")
    lossless.add_argument(
        "--samples", type=_at_least(1), default=100_000, help="sampled sequences a check [100000]"
    )
    trace = add("trace", "tokens per target pass on recorded outputs of a target")
    trace.add_argument("file", type=Path, help="JSONL with target_tokens and draft_tokens a line")
    trace.add_argument("--stride", type=int, default=1, help="take every n-th response [1]")
    trace.add_argument("--nodes", type=int, default=64, help="largest draft tree [64]")
    events = add("events", "events per second from packets to event images, against other ways")
    events.add_argument(
        "recordings", type=Path, nargs="*", help="recordings to measure beside synthetic streams"
    )
    events.add_argument("--repeats", type=_at_least(1), default=7, help="interleaved runs of each [7]")
    events.add_argument(
        "--no-ros", dest="ros", action="store_false", help="leave out the rate between two ROS processes"
    )
    soak = add("soak", "a dv network stream captioned for minutes: losses, memory, reconnection")
    soak.add_argument(
        "--seconds", type=_seconds, default=1200.0, help="how long; memory counts from 1120 [1200]"
    )
    soak.add_argument("--rate", type=float, default=5.0, help="million events per second [5]")
    soak.add_argument("--inference", type=_seconds, default=0.0, help="slow each caption by SECONDS [0]")
    gpu = add("gpu", "what the 7B models take on a GPU, with random weights and recorded captions")
    gpu.add_argument(
        "--trace", type=Path, required=True, help="JSONL with target_tokens and draft_tokens a line"
    )
    gpu.add_argument("--dtypes", default="bf16,nf4", help="one after another, with commas between [bf16,nf4]")
    gpu.add_argument(
        "--device", default="auto", help="where the models run: auto, cpu, cuda or cuda:N [auto]"
    )
    gpu.add_argument("--draft-device", default="", help="where the draft runs [where the target does]")
    gpu.add_argument("--stride", type=_at_least(1), default=2, help="take every n-th response [2]")
    gpu.add_argument("--heard", type=_at_least(0), default=0, help="responses the memory begins with [0]")
    gpu.add_argument(
        "--windows", type=_at_least(1), default=30, help="responses that follow, a window each [30]"
    )
    gpu.add_argument("--rounds", type=_at_least(1), default=2, help="how often all windows are captioned [2]")
    gpu.add_argument("--repeats", type=_at_least(1), default=20, help="interleaved runs of each pass [20]")
    gpu.add_argument("--tiny", action="store_true", help="try the command on small models on the CPU")
    gpu.add_argument("--timeline", type=Path, help="write the stages here for ui.perfetto.dev")
    for bench in (latency, trace, events, gpu):
        bench.add_argument("--plot", type=Path, help="draw the figures here as well")
    for bench in (captions, latency, lossless, trace, events, soak, gpu):
        bench.add_argument("--json", type=Path, help="write the figures here as well")
    figure = add("figure", "draw windows: images, captions, and the timeline of their stages")
    figure.add_argument(
        "out", type=Path, help="the picture to write: .png, .svg or .pdf of one window, .gif of several"
    )
    figure.add_argument(
        "--seed", type=_at_least(0), default=1_000_322, help="drive [1000322, the sample bag's]"
    )
    figure.add_argument("--second", type=_at_least(0), default=0, help="which second of it [0]")
    figure.add_argument(
        "--seconds", type=_at_least(1), default=3, help="how many seconds a .gif shows from there on [3]"
    )
    figure.add_argument(
        "--exposure",
        type=_seconds,
        default=1.0,
        help="factor on the brightness of the RGB frames: 0.05 for a dark night [1]",
    )
    figure.add_argument(
        "--latency",
        type=Path,
        metavar="FILE",
        help="draw the figures of bench latency --json instead",
    )
    for bench in (captions, latency, lossless, soak, figure):
        bench.add_argument("--models", type=Path, help="folder of both checkpoints [models/tiny]")


def _info(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "info",
        help="tell what a recording holds and what is wrong with it",
        description="Topics, encodings, rates, gaps and damage of a recording, a fingerprint of its events, "
        "and what is wrong with it.",
    )
    parser.add_argument("path", type=Path, help=FORMATS)
    _images(parser)
    _topics(parser)
    parser.add_argument("--json", type=Path, help="write the same here as well")
    parser.set_defaults(handler=_checked(_lazily("crossspec_ros.recordings.info:run")))


def _checked(measure: Callable[..., object]) -> Callable[[argparse.Namespace], object]:
    """Refuse an output that cannot be written before the work, not after it."""

    def call(args: argparse.Namespace) -> object:
        named = [path.resolve() for name in _OUTPUTS if (path := getattr(args, name, None)) is not None]
        if len(set(named)) < len(named):
            raise InputError("two results cannot go into one file: name a file for each")
        for name in _OUTPUTS:
            path = getattr(args, name, None)
            # Drafts that are there are read.
            if path is None or (name == "drafts" and path.exists()):
                continue
            suffixes = {"plot": _PICTURES, "out": (*_PICTURES, ".gif")}.get(name)
            if suffixes and path.suffix not in suffixes:
                raise InputError(f"'{path}' is no picture's name: end it in one of {', '.join(suffixes)}")
            is_new = not path.exists()
            try:
                path.open("ab").close()
            except OSError as error:
                raise InputError(
                    f"'{path}' cannot be written ({error.strerror}): name a file in a folder that exists and "
                    f"can be written to"
                ) from None
            if is_new:
                path.unlink()
        return measure(args)

    return call


_OUTPUTS = ("json", "junit", "html", "plot", "out", "timeline", "drafts")
_PICTURES = (".png", ".svg", ".pdf")


def _at_least(least: int) -> Callable[[str], int]:
    """The type of an argument that is a whole number from `least` on."""

    def whole(text: str) -> int:
        if not text.lstrip("-").isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"'{text}' is no whole number from {least} on")
        return int(text)

    return whole


def _seconds(text: str) -> float:
    """The type of an argument that is a time in seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is no number of seconds above 0")
    return seconds


def _lazily(function: str) -> Callable[..., object]:
    """A function named as `module:function`, imported when it is called."""

    def call(*args: object) -> object:
        module, _, name = function.partition(":")
        return getattr(importlib.import_module(module), name)(*args)

    return call


if __name__ == "__main__":
    sys.exit(main())
