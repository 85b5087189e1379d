"""Commands of the laboratory and their arguments, which `crossspec` takes in by an entry point."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from crossspec_lab.train.tiny import FAMILIES, PAIR
from crossspec_ros.arguments import at_least, checked, lazily, named_models, recorded, seconds
from crossspec_ros.paths import found
from crossspec_ros.recordings.recording import FORMATS

if TYPE_CHECKING:
    from crossspec_ros.arguments import Subparsers


_MODULES = {
    "handoff": "handoff.measure",
    "faults": "trials.faults",
    "kills": "trials.kills",
    "soak": "trials.soak",
}
"""Modules of `bench` outside of the folder compare."""


def add_commands(subparsers: Subparsers) -> None:
    """Add all commands of the laboratory."""
    for add in (_synth, _train, _bench, _experiments, _advise, _fuzz):
        add(subparsers)


def _bench(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("bench", help="measure")
    what = parser.add_subparsers(required=True, metavar="WHAT")

    def add(name: str, purpose: str) -> argparse.ArgumentParser:
        bench = what.add_parser(name, help=purpose, description=purpose)
        measure = lazily(f"crossspec_lab.{_MODULES.get(name, f'compare.{name}')}:run")
        bench.set_defaults(handler=checked(measure))
        return bench

    captions = add("captions", "accuracy and draft acceptance on held-out drives")
    latency = add("latency", "from a window's last frame to its caption, against other decoders in real time")
    lossless = add("lossless", "whether captions are the target's own: greedy, bfloat16, sampling")
    for bench, windows in ((captions, 200), (latency, 200), (lossless, 500)):
        bench.add_argument("--windows", type=int, default=windows, help=f"held-out windows [{windows}]")
    lossless.add_argument(
        "--samples", type=at_least(1), default=100_000, help="sampled sequences a check [100000]"
    )
    handoff = add("handoff", "aligned event features in place of frames: likeness, gates, captions")
    handoff.add_argument("--windows", type=int, default=200, help="held-out windows [200]")
    handoff.add_argument(
        "--handoff", type=found, help="folder of the weights [handoff in the models' folder]"
    )
    trace = add("trace", "tokens per target pass on recorded outputs of a target")
    trace.add_argument("file", type=Path, help="JSONL with target_tokens and draft_tokens a line")
    trace.add_argument("--stride", type=int, default=1, help="take every n-th response [1]")
    trace.add_argument("--nodes", type=int, default=64, help="largest draft tree [64]")
    heads = add("heads", "draft heads offline and in the decoder, by how new a window is")
    heads.add_argument("--heads", type=found, help="folder of heads [heads in the folder of the models]")
    heads.add_argument("--windows", type=at_least(8), default=160, help="held-out windows [160]")
    heads.add_argument(
        "--warm", type=at_least(0), default=40, help="windows that the memory learns first [40]"
    )
    events = add("events", "events per second from packets to event images, against other ways")
    events.add_argument(
        "recordings", type=found, nargs="*", help="recordings to measure beside synthetic streams"
    )
    events.add_argument("--repeats", type=at_least(1), default=7, help="interleaved runs of each [7]")
    events.add_argument(
        "--no-ros", dest="ros", action="store_false", help="leave out the rate between two ROS processes"
    )
    soak = add("soak", "a dv network stream captioned for minutes: losses, memory, reconnection")
    soak.add_argument(
        "--seconds", type=seconds, default=1200.0, help="how long; memory counts from 1120 [1200]"
    )
    soak.add_argument("--rate", type=float, default=5.0, help="million events per second [5]")
    soak.add_argument("--inference", type=seconds, default=0.0, help="slow each caption by SECONDS [0]")
    soak.add_argument(
        "--faults", action="store_true", help="one each half minute: killed drivers, steps of clocks, floods"
    )
    gpu = add("gpu", "what the 7B models take on a GPU, with random weights and recorded captions")
    gpu.add_argument(
        "--trace", type=Path, required=True, help="JSONL with target_tokens and draft_tokens a line"
    )
    gpu.add_argument("--dtypes", default="bf16,nf4", help="one after another, with commas between [bf16,nf4]")
    gpu.add_argument(
        "--device", default="auto", help="where the models run: auto, cpu, cuda or cuda:N [auto]"
    )
    gpu.add_argument("--draft-device", default="", help="where the draft runs [where the target does]")
    gpu.add_argument("--stride", type=at_least(1), default=2, help="take every n-th response [2]")
    gpu.add_argument("--heard", type=at_least(0), default=0, help="responses the memory begins with [0]")
    gpu.add_argument(
        "--windows", type=at_least(1), default=30, help="responses that follow, a window each [30]"
    )
    gpu.add_argument("--rounds", type=at_least(1), default=2, help="how often all windows are captioned [2]")
    gpu.add_argument("--repeats", type=at_least(1), default=20, help="interleaved runs of each pass [20]")
    gpu.add_argument("--tiny", action="store_true", help="try the command on small models on the CPU")
    gpu.add_argument("--timeline", type=Path, help="write the stages here for ui.perfetto.dev")
    fleet = add("fleet", "many robots and one target over Ray Serve, against other ways to serve them")
    fleet.add_argument("--robots", default="1,2,4,8,16", help="how many at a time [1,2,4,8,16]")
    fleet.add_argument("--windows", type=at_least(4), default=20, help="windows of each robot [20]")
    fleet.add_argument("--drives", type=at_least(1), default=12, help="recorded drives of 4 windows [12]")
    fleet.add_argument("--repeats", type=at_least(1), default=3, help="interleaved runs of each way [3]")
    fleet.add_argument("--threads", type=at_least(1), default=2, help="CPU threads of a served target [2]")
    fleet.add_argument("--no-links", action="store_true", help="leave out slow links")
    faults = add("faults", "what a served target and its robots survive, while other robots caption on")
    faults.add_argument("--robots", type=at_least(4), default=16, help="how many come and go [16]")
    faults.add_argument("--windows", type=at_least(1), default=500, help="of all, before the faults [500]")
    faults.add_argument("--messages", type=at_least(1), default=10_000, help="that are mutated [10000]")
    faults.add_argument("--threads", type=at_least(1), default=2, help="CPU threads of the target [2]")
    kills = add("kills", "memory, goldens and bags after SIGKILL at random moments of their writing")
    kills.add_argument("--kills", type=at_least(1), default=200, help="how many processes are killed [200]")
    kills.add_argument("--seed", type=at_least(0), default=0, help="of the moments [0]")
    for bench in (latency, trace, events, gpu, heads, fleet, faults):
        bench.add_argument("--plot", type=Path, help="draw the figures here as well")
    for bench in (
        captions,
        latency,
        lossless,
        trace,
        events,
        soak,
        gpu,
        heads,
        handoff,
        fleet,
        faults,
        kills,
    ):
        bench.add_argument("--json", type=Path, help="write the figures here as well")
    figure = add("figure", "draw windows: images, captions, and the timeline of their stages")
    figure.add_argument(
        "out", type=Path, help="the picture to write: .png, .svg or .pdf of one window, .gif of several"
    )
    figure.add_argument(
        "--seed", type=at_least(0), default=1_000_322, help="drive [1000322, the sample bag's]"
    )
    figure.add_argument("--second", type=at_least(0), default=0, help="which second of it [0]")
    figure.add_argument(
        "--seconds", type=at_least(1), default=3, help="how many seconds a .gif shows from there on [3]"
    )
    figure.add_argument(
        "--exposure",
        type=seconds,
        default=1.0,
        help="factor on the brightness of the RGB frames: 0.05 for a dark night [1]",
    )
    figure.add_argument(
        "--latency",
        type=Path,
        metavar="FILE",
        help="draw the figures of bench latency --json instead",
    )
    for bench in (captions, latency, lossless, soak, figure, heads, handoff):
        bench.add_argument("--models", type=found, help="folder of both checkpoints [models/tiny]")
    gpu.add_argument("--target", default="", help="folder of another target, whose weights are not read [7B]")
    for bench in (captions, latency, lossless, heads):
        bench.add_argument(
            "--target", default="", help="folder of another target, or its hub id [the one of the models]"
        )


def _synth(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "synth", help="write a drive through the synthetic world as a DSEC sequence"
    )
    parser.add_argument("out", type=Path, help="the directory to write")
    parser.add_argument("--seconds", type=int, default=9, help="length of the drive [9]")
    parser.add_argument(
        "--seed", type=int, default=1_000_001, help="which drive; below 1000000 are training's [1000001]"
    )
    parser.set_defaults(handler=lazily("crossspec_lab.world.synth:run"))


def _train(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("train", help="train models")
    models = parser.add_subparsers(required=True, metavar="MODELS")
    tiny = models.add_parser(
        "tiny", help="the tiny pair on the synthetic world, on two CPU cores in an hour or two"
    )
    _folders(tiny, "the models", "build/models", "windows and checkpoints", "build/tiny")
    tiny.add_argument("--shrink", type=int, default=1, help="divide data and steps, to try the command [1]")
    tiny.add_argument(
        "--family",
        choices=FAMILIES,
        default=PAIR,
        help=f"of the target; another than {PAIR}'s is trained without the draft, which serves all [{PAIR}]",
    )
    tiny.add_argument("--only", choices=("target", "draft"), help="train one of them, and leave the other")
    tiny.set_defaults(handler=lazily("crossspec_lab.train.tiny:run"))
    _train_heads(models)
    _train_handoff(models)


def _train_heads(models: Subparsers) -> None:
    parser = models.add_parser(
        "heads",
        help="draft heads for a pair of models, from the states of both on the same windows",
        description="Asks both models about windows, keeps their states, and trains draft heads on them. "
        "With the same arguments an interrupted run goes on where it stopped; else name another --work.",
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help="heads of docs/drafters.md, or all")
    parser.add_argument(
        "--recordings",
        type=found,
        nargs="+",
        metavar="PATH",
        help=f"learn from these [synthetic drives]: {FORMATS}",
    )
    recorded(parser)
    parser.add_argument("--question", help="what is asked about every window")
    parser.add_argument("--windows", type=at_least(10), default=4000, help="how many, at most [4000]")
    parser.add_argument("--steps", type=at_least(1), help="training steps, at most [the head's own]")
    parser.add_argument(
        "--models", type=found, help="folder of the target and draft checkpoints [models/tiny]"
    )
    named_models(parser)
    parser.add_argument("--dtype", help="float32, bf16, int8 or nf4, the numbers of both models [float32]")
    parser.add_argument("--device", help="where models and heads run: auto, cpu, cuda or cuda:N [auto]")
    parser.add_argument("--config", type=found, help="parameters of the nodes [config/replay.yaml]")
    _folders(parser, "the heads", "build/heads", "states, logs and checkpoints", "build/head_training")
    parser.set_defaults(handler=lazily("crossspec_lab.train.head_training:run"))


def _train_handoff(models: Subparsers) -> None:
    parser = models.add_parser(
        "handoff", help="what aligns a pair's event features into its target's space, on one core"
    )
    parser.add_argument("--models", type=found, help="folder of both checkpoints [models/tiny]")
    _folders(
        parser, "the weights", "build/handoff", "windows, features and a checkpoint", "build/handoff_work"
    )
    parser.add_argument("--windows", type=at_least(1), default=3000, help="windows to learn from [3000]")
    parser.add_argument("--steps", type=at_least(1), default=1500, help="steps of training [1500]")
    parser.set_defaults(handler=lazily("crossspec_lab.handoff.training:run"))


def _folders(parser: argparse.ArgumentParser, made: str, out: str, kept: str, work: str) -> None:
    """Add where what is trained goes, and what an interrupted training goes on from."""
    parser.add_argument("--out", type=Path, default=Path(out), help=f"folder for {made} [{out}]")
    parser.add_argument("--work", type=Path, default=Path(work), help=f"folder for {kept} [{work}]")


def _experiments(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "experiments",
        help="run the published experiments against other people's ways to decode, and write a report",
        description="Runs experiments on the tiny pair: 1 frames, 2 all ways and their stages, 3 alignment, "
        "4 streaming, 5 quality, 6 ablations, 7 use of the device. What was measured already in the folder "
        "is kept, so that an interrupted run goes on.",
    )
    parser.add_argument(
        "which",
        nargs="*",
        metavar="N",
        help="numbers of experiments, or all [all: half an hour on two cores]",
    )
    parser.add_argument("--quick", action="store_true", help="few windows: under five minutes on two cores")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("build/experiments"),
        metavar="FOLDER",
        help="for the report, raw results and what was trained on the way [build/experiments]",
    )
    parser.add_argument("--seed", type=at_least(0), default=0, help="of training and of intervals [0]")
    parser.add_argument("--models", type=found, help="folder of the models [that of the package]")
    parser.set_defaults(handler=lazily("crossspec_lab.experiments.command:run"))


def _advise(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "advise", help="say which mode to run on this machine, from a measurement of experiment 2"
    )
    parser.add_argument(
        "folder",
        type=Path,
        nargs="?",
        default=Path("build/experiments"),
        help="of the measurement [build/experiments]",
    )
    parser.add_argument(
        "--lossy", action="store_true", help="also tell of ways whose captions are not the target's own"
    )
    parser.add_argument("--period", type=seconds, default=1.0, help="seconds of a window [1]")
    parser.set_defaults(handler=lazily("crossspec_lab.experiments.advise:run"))


def _fuzz(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("fuzz", help="unsound messages and files, and what survives them")
    what = parser.add_subparsers(required=True, metavar="WHAT")
    for name, count, purpose in (
        ("messages", 100_000, "publish unsound messages of every type to the nodes"),
        ("files", 20_000, "read unsound files of every format"),
        ("server", 20_000, "say unsound messages to a served target"),
    ):
        description = f"{purpose.capitalize()}. The exit code is 1 where a bar is missed."
        fuzz = what.add_parser(name, help=purpose, description=description)
        fuzz.add_argument("count", type=at_least(1), nargs="?", default=count, help=f"how many [{count}]")
        fuzz.add_argument("--seed", type=int, default=0, help="of what is random [0]")
        fuzz.add_argument("--json", type=Path, help="write the figures here as well")
        if name == "messages":
            fuzz.add_argument(
                "--compressed",
                action="store_true",
                help="let the synchronizer take compressed images and dvs_msgs/EventArray",
            )
        if name == "files":
            fuzz.add_argument(
                "--findings",
                type=Path,
                default=Path("build/findings"),
                help="where files go that were not handled well [build/findings]",
            )
        fuzz.set_defaults(handler=checked(lazily(f"crossspec_lab.trials.fuzz_{name}:run")))
