"""The arguments of `crossspec bench`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from crossspec_ros.arguments import at_least, checked, lazily, seconds
from crossspec_ros.paths import found

if TYPE_CHECKING:
    from crossspec_ros.arguments import Subparsers


def add_bench(subparsers: Subparsers) -> None:
    """The command `crossspec bench`."""
    parser = subparsers.add_parser("bench", help="measure")
    what = parser.add_subparsers(required=True, metavar="WHAT")

    def add(name: str, purpose: str) -> argparse.ArgumentParser:
        bench = what.add_parser(name, help=purpose, description=purpose)
        measure = lazily(f"crossspec_ros.bench.{name}:run")
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
