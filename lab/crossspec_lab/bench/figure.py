"""`crossspec bench figure`: a drive as a GIF, or bars of a file of `bench latency`."""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from pathlib import Path

from matplotlib.figure import Figure

from crossspec_lab.bench.animation import alone, live_second, write_gif
from crossspec_lab.bench.columns import WALL
from crossspec_lab.bench.plots import wait_bars
from crossspec_lab.heads.decoder import head_decoder
from crossspec_lab.world.scene import drive
from crossspec_ros.captioning.load_decoder import speculative_decoder
from crossspec_ros.errors import InputError
from crossspec_ros.models.loading import load_pair
from crossspec_ros.paths import tiny_models

NAMES = {
    "ours": "crossspec_ros",
    "ours, no draft": "the target alone,\nreading frames as they come",
    "fixed gamma 4": "speculative decoding,\n4 draft tokens a round",
    "autoregressive": "the target alone",
    "generate, plain": "transformers generate",
    "generate, assisted": "transformers generate,\nassisted by the draft",
}
"""Decoders that are shown, by their names in the file."""


def run(args: argparse.Namespace) -> int:
    """Caption seconds of the drive `args.seed` and draw them to `args.out`, or draw a file of latencies."""
    if args.latency:
        draw_headline(args.latency, args.out)
    else:
        _caption(args)
    print(args.out)
    return 0


def _caption(args: argparse.Namespace) -> None:
    if args.out.suffix != ".gif":
        raise InputError(f"'{args.out}' is no .gif: name one, or give --latency for bars")
    pair = load_pair(args.models or tiny_models())
    last = args.second + args.seconds
    scenes = drive(args.seed, last + 2)
    with closing(speculative_decoder(pair)) as decoder:
        # The memory knows the seconds before, as that of a running node does.
        seconds = [live_second(decoder, scenes, args.seed, second) for second in range(last)][args.second :]
    with closing(head_decoder(pair, names=())) as target:
        others = [alone(target, second.window) for second in seconds]
    for second, other in zip(seconds, others, strict=True):
        ours_ms, alone_ms = second.words[-1][0], other[-1][0]
        print(f"second {second.second}: {ours_ms:.0f} ms, the target alone {alone_ms:.0f} ms", flush=True)
    write_gif(seconds, others, args.out)


def draw_headline(measured: Path, out: Path) -> None:
    """Draw the medians as bars, with the 10th to 90th percentiles; raises InputError for another file."""
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots()
    try:
        measures = json.loads(measured.read_text())["tables"][0]["rows"]
        rows = {shown: measures[name][WALL] for name, shown in NAMES.items()}
        wait_bars(axes, rows, NAMES["ours"])
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            f"'{measured}' is no file of crossspec bench latency --json: name one, as "
            f"docs/benchmarks/latency.json"
        ) from None
    figure.savefig(out, dpi=100)
