"""Commands of the laboratory and their arguments, which `crossspec` takes in by an entry point."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from crossspec_ros.cli import add_flags, checked, lazily
from crossspec_ros.paths import found
from crossspec_ros.recordings.recording import FORMATS

if TYPE_CHECKING:
    from crossspec_ros.cli import Subparsers


Option = Callable[..., object]
"""`add_argument` of a command."""
_RECORDED = "bench.benches"
"""Module of the benches that write records."""


def add_commands(subparsers: Subparsers) -> None:
    """Add all commands of the laboratory."""
    for add in (_synth, _train, _bench, _fuzz):
        add(subparsers)


def _bench(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("bench", help="measure")
    what = parser.add_subparsers(required=True, metavar="WHAT")

    def add(name: str, purpose: str, module: str = "", windows: int = 0) -> Option:
        bench = what.add_parser(name, help=purpose, description=purpose)
        measure = lazily(f"crossspec_lab.{module or f'bench.{name}'}:run")
        bench.set_defaults(handler=measure if module == _RECORDED else checked(measure), bench=name)
        if windows:
            bench.add_argument("--windows", type=int, default=windows, help=f"number of windows [{windows}]")
            bench.add_argument("--models", type=found, help="folder of both checkpoints [models/tiny]")
            target = "folder of another target, or its hub id [the one of the models]"
            bench.add_argument("--target", default="", help=target)
            where = "where the models run: auto, cpu, cuda or cuda:N [cpu]"
            bench.add_argument("--device", default="cpu", help=where)
            bench.add_argument("--threads", type=at_least(1), default=1, help="CPU threads of each model [1]")
        default = Path("build/bench") / f"{name}.json" if module == _RECORDED else None
        figures = f"file of the figures{f' [{default}]' if default else ''}"
        if name not in ("all", "figure"):
            bench.add_argument("--json", type=Path, default=default, help=figures)
        return bench.add_argument

    for name, windows, purpose in (
        ("latency", 40, "time from a window's last frame to its caption, for every decoder"),
        ("stream", 40, "windows in a row: captions, dropped windows and latencies of each decoder"),
        ("rates", 30, "windows in a row at 8 to 60 frames a second"),
        ("structured", 60, "latency and correctness of captions as JSON of a schema"),
        ("frames", 24, "speed-up of captions with 1 to 64 frames a window"),
        ("alignment", 40, "share of the draft's tokens that the target accepts, by their alignment"),
        ("ablations", 24, "tokens a pass without each idea"),
        ("draft_lengths", 24, "standard speculative decoding by tokens drafted a round"),
    ):
        option = add(name, f"{purpose}; an interrupted run resumes", _RECORDED, windows)
        option("--period", type=seconds, default=1.0, help="seconds of a window [1]")
        recording = "recording whose windows replace the held-out ones"
        option("--recording", type=found, help=recording)
    add("captions", "accuracy and draft acceptance on held-out drives", windows=200)
    add("lossless", "captions equal to the target's own: float32, bfloat16, llama.cpp", windows=500)
    trace = add("trace", "tokens per target pass on recorded outputs of a target")
    trace("file", type=Path, help="JSONL with target_tokens and draft_tokens a line")
    trace("--stride", type=int, default=1, help="take every n-th response [1]")
    trace("--nodes", type=int, default=64, help="largest draft tree [64]")
    events = add("events", "events per second from packets to event images, against other libraries")
    events("recordings", type=found, nargs="*", help="recordings to measure as well as synthetic streams")
    events("--repeats", type=at_least(1), default=7, help="interleaved runs of each [7]")
    no_ros = "leave out the rate between two ROS processes"
    events("--no-ros", dest="ros", action="store_false", help=no_ros)
    soak = add("soak", "a dv network stream captioned for minutes: losses, memory", "trials.soak")
    soak("--seconds", type=seconds, default=1200.0, help="duration; memory counts from 1120 [1200]")
    soak("--rate", type=float, default=5.0, help="million events per second [5]")
    faults = "one each half minute: killed drivers, steps of clocks, full disks"
    soak("--faults", action="store_true", help=faults)
    gpu = add("gpu", "time and memory of 7B models on a GPU, with random weights and recorded captions")
    gpu("--trace", type=Path, required=True, help="JSONL with target_tokens and draft_tokens a line")
    gpu("--dtypes", default="bf16,nf4", help="dtypes, separated by commas [bf16,nf4]")
    gpu("--device", default="auto", help="where the models run: auto, cpu, cuda or cuda:N [auto]")
    gpu("--draft-device", default="", help="where the draft runs [where the target does]")
    gpu("--stride", type=at_least(1), default=2, help="take every n-th response [2]")
    gpu("--heard", type=at_least(0), default=0, help="number of responses in the memory at the start [0]")
    gpu("--windows", type=at_least(1), default=30, help="number of windows, each with the next response [30]")
    gpu("--hurried", type=at_least(0), default=8, help="number of windows without pauses [8]")
    gpu("--repeats", type=at_least(1), default=20, help="interleaved runs of each pass [20]")
    gpu("--tiny", action="store_true", help="try the command on small models, on any device")
    gpu("--target", default="", help="folder of another target, whose weights are not read [7B]")
    every = add("all", "the tables of docs/measured.md that a CPU can measure, one after the other: hours")
    every("which", nargs="*", metavar="NAME", help="names of runs [all]")
    results = Path("build/bench")
    every("--results", type=Path, default=results, help=f"folder for JSON; existing files stay [{results}]")
    pages = "pages whose tables are then written anew"
    every("--publish", type=found, nargs="*", default=(), metavar="PAGE", help=pages)
    figure = add("figure", "animate a drive with its captions")
    figure("out", type=Path, help="the .gif to write")
    figure("--seed", type=at_least(0), default=1_000_322, help="drive [1000322, that of the sample bag]")
    figure("--second", type=at_least(0), default=0, help="first second of the drive [0]")
    figure("--seconds", type=at_least(1), default=3, help="number of seconds from there on [3]")
    for option in (soak, figure):
        option("--models", type=found, help="folder of both checkpoints [models/tiny]")


def _synth(subparsers: Subparsers) -> None:
    purpose = "write a drive through the synthetic world as a DSEC sequence"
    parser = subparsers.add_parser("synth", help=purpose)
    parser.add_argument("out", type=Path, help="the directory to write")
    parser.add_argument("--seconds", type=int, default=9, help="length of the drive [9]")
    which = "seed of the drive; seeds below 1000000 are for training [1000001]"
    parser.add_argument("--seed", type=int, default=1_000_001, help=which)
    parser.set_defaults(handler=lazily("crossspec_lab.world.synth:run"))


def _train(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("train", help="train models")
    models = parser.add_subparsers(required=True, metavar="MODELS")

    def add(name: str, purpose: str, made: str, out: str, work: str) -> argparse.ArgumentParser:
        parser = models.add_parser(name, help=purpose, description=purpose)
        option, module = parser.add_argument, "head_training" if name == "heads" else name
        option("--out", type=Path, default=Path(out), help=f"folder for {made} [{out}]")
        kept = "training data, logs and checkpoints"
        option("--work", type=Path, default=Path(work), help=f"folder for {kept} [{work}]")
        if name != "heads":
            shrink = "divide data and steps, to try the command [1]"
            option("--shrink", type=at_least(1), default=1, help=shrink)
        parser.set_defaults(handler=lazily(f"crossspec_lab.train.{module}:run"))
        return parser

    purpose = "the tiny pair on the synthetic world, on two CPU cores in an hour or two"
    option = add("tiny", purpose, "the models", "build/models", "build/tiny").add_argument
    family = "of the target; qwen3_vl is trained without the draft, which serves both [video_llava]"
    option("--family", choices=("video_llava", "qwen3_vl"), default="video_llava", help=family)
    option("--only", choices=("target", "draft"), help="train only this one")
    purpose = "the tiny target that fills in forms and answers standing questions, in an hour on two cores"
    add("answers", purpose, "the checkpoint", "build/tiny_answers", "build/answers")
    purpose = "SmolLM2-135M with a small tower on the synthetic world, on two CPU cores in hours"
    option = add("smol", purpose, "the checkpoint", "build/smol_target", "build/smol").add_argument
    option("--device", choices=("cpu", "cuda"), default="cpu", help="where it trains [cpu]")
    purpose = "draft heads for a pair of models, from the states of both on the same windows"
    heads = add("heads", purpose, "the heads", "build/heads", "build/head_training")
    heads.description = (
        "Extracts the states of both models on windows, and trains draft heads on them. With the same "
        "arguments an interrupted run continues. Other arguments need another --work."
    )
    option = heads.add_argument
    option("names", nargs="+", metavar="NAME", help="massv, eagle3, medusa, or all")
    sources = f"recordings to learn from [synthetic drives]: {FORMATS}"
    option("--recordings", type=found, nargs="+", metavar="PATH", help=sources)
    option("--windows", type=at_least(10), default=4000, help="highest number of windows [4000]")
    option("--steps", type=at_least(1), help="highest number of training steps [the head's own]")
    add_flags(heads, "recording", "models", "question", "dtype", "device")
    option("--config", type=found, help="parameters of the nodes [config/replay.yaml]")


def _fuzz(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("fuzz", help="publish invalid messages, read damaged files")
    what = parser.add_subparsers(required=True, metavar="WHAT")
    for name, count, purpose in (
        ("messages", 100_000, "publish invalid messages of every type to the nodes"),
        ("files", 2_000, "read damaged recordings of every format, up to the first failure"),
    ):
        description = f"{purpose.capitalize()}. The exit code is 1 where a bar is missed."
        fuzz = what.add_parser(name, help=purpose, description=description)
        option = fuzz.add_argument
        option("count", type=at_least(1), nargs="?", default=count, help=f"number of {name} [{count}]")
        option("--seed", type=int, default=0, help="of the random messages or damages [0]")
        option("--json", type=Path, help="write the figures here as well")
        if name == "files":
            kept = "folder for the smallest file that a reader fails at [build/findings]"
            option("--findings", type=Path, default=Path("build/findings"), help=kept)
        fuzz.set_defaults(handler=checked(lazily("crossspec_lab.trials.fuzz:run")), what=name)


def at_least(least: int) -> Callable[[str], int]:
    """Return the type of an argument that is an integer of at least `least`."""

    def integer(text: str) -> int:
        if not text.lstrip("-").isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"'{text}' is no integer from {least} on")
        return int(text)

    return integer


def seconds(text: str) -> float:
    """Return a positive number of seconds; the type of an argument."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is no number of seconds above 0")
    return number
