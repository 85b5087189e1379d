"""`crossspec bench figure`: a drive as a GIF, or bars of a file of `bench latency`."""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from crossspec_lab.compare.animation import alone, live_second, write_gif
from crossspec_lab.compare.plots import mode_bars
from crossspec_lab.world.scene import drive
from crossspec_ros.captioning.assembly import autoregressive_decoder, speculative_decoder
from crossspec_ros.drafting.heads.head_files import fitting_heads
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
    models = args.models or tiny_models()
    pair = load_pair(models)
    heads = fitting_heads(models, None, pair.target, pair.draft)
    last = args.second + args.seconds
    scenes = drive(args.seed, last + 2)
    with closing(speculative_decoder(pair, heads=heads)) as decoder:
        # The memory knows the seconds before, as that of a running node does.
        seconds = [live_second(decoder, scenes, args.seed, second) for second in range(last)][args.second :]
    with closing(autoregressive_decoder(pair)) as target:
        others = [alone(target, second.window) for second in seconds]
    for second, other in zip(seconds, others, strict=True):
        ours_ms, alone_ms = second.words[-1][0], other[-1][0]
        print(f"second {second.second}: {ours_ms:.0f} ms, the target alone {alone_ms:.0f} ms", flush=True)
    write_gif(seconds, others, args.out)


_WAIT = "last_frame_to_caption_ms"
"""Key of the fair comparison: all decoders begin with the last frame."""


def draw_headline(measured: Path, out: Path) -> None:
    """Draw the medians as bars, with the 10th to 90th percentiles; raises InputError for another file."""
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots()
    try:
        figures = json.loads(measured.read_text())
        mode_bars(axes, figures["modes"], NAMES)
        figure.suptitle(headline(figures), fontsize=10)
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            f"'{measured}' is no file of crossspec bench latency --json: name one, as "
            f"docs/benchmarks/latency.json"
        ) from None
    figure.savefig(out, dpi=100)


def headline(figures: dict[str, Any]) -> str:
    """The sentence that the README begins with, in figures."""
    ours, target = (figures["modes"][name][_WAIT]["median"] for name in ("ours", "autoregressive"))
    ratio = figures["modes"]["ours"]["last_frame_to_caption_ratio"]["median"]
    other = figures["sooner_than"]["generate, plain"]["median"]
    return (
        f"{ratio:.1f}x sooner than the target alone ({ours:.0f} instead of {target:.0f} ms), "
        f"{other:.1f}x sooner than generate ({figures['windows']} windows)"
    )
