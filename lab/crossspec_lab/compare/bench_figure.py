"""`crossspec bench figure`: windows as both models saw them, what they said, and when each stage ran; or how
long captions take by decoder, as bars from a file of `bench latency`."""

from __future__ import annotations

import argparse
import json
import textwrap
from contextlib import closing
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from crossspec_lab.compare.animation import write_gif
from crossspec_lab.compare.lived import Drive, Second, alone, live_second
from crossspec_lab.compare.plots import mode_bars
from crossspec_lab.compare.timeline import draw_timeline
from crossspec_lab.world.phrases import caption as true_caption
from crossspec_lab.world.scene import drive
from crossspec_ros.captioning.assembly import autoregressive_decoder, speculative_decoder
from crossspec_ros.drafting.heads.head_files import fitting_heads
from crossspec_ros.errors import InputError
from crossspec_ros.events.images import event_images
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
    """Caption seconds of the drive `args.seed` and draw them to `args.out`, as its suffix and options say."""
    if args.latency:
        draw_headline(args.latency, args.out)
    else:
        _caption(args)
    print(args.out)
    return 0


def _caption(args: argparse.Namespace) -> None:
    is_moving = args.out.suffix == ".gif"
    if args.exposure != 1 and is_moving:
        raise InputError("--exposure is for one window: name a picture that is no .gif")
    models = args.models or tiny_models()
    pair = load_pair(models)
    heads = fitting_heads(models, None, pair.target, pair.draft)
    last = args.second + args.seconds if is_moving else args.second + 1
    scenes = Drive(args.seed, drive(args.seed, last + 2), args.exposure)
    with closing(speculative_decoder(pair, heads=heads)) as decoder:
        # The memory knows the seconds before, as that of a running node does.
        seconds = [live_second(decoder, scenes, second) for second in range(last)][args.second :]
    if is_moving:
        with closing(autoregressive_decoder(pair)) as target:
            others = [alone(target, second.window) for second in seconds]
        for second, other in zip(seconds, others, strict=True):
            ours_ms, alone_ms = second.words[-1][0], other[-1][0]
            print(f"second {second.second}: {ours_ms:.0f} ms, the target alone {alone_ms:.0f} ms", flush=True)
        write_gif(seconds, others, args.out)
    else:
        _draw(seconds[0], args.out)


def _texts(second: Second) -> str:
    caption, truth = second.caption, true_caption(second.drive.scenes[second.second])
    taken = [f"{caption.accepted.get(p, 0)} of {n} accepted from {p}" for p, n in caption.drafted.items()]
    faults = ", ".join(second.faults).replace("_", " ")
    if caption.source == "target":
        blocks = {
            "verified caption": caption.text,
            "event draft": second.drafts[0] if second.drafts else "(not done when the window closed)",
        }
    else:
        blocks = {f"caption [from events only] [{faults}]": caption.text}
    blocks["ground truth"] = "as the caption" if truth == caption.text else truth
    if caption.source == "target":
        blocks["verified in"] = (
            f"{caption.target_passes} target passes for {len(caption.token_ids)} tokens; {', '.join(taken)}"
        )
    return "\n".join(
        textwrap.fill(f"{name}: {text}", 125, subsequent_indent="    ") for name, text in blocks.items()
    )


def _draw(second: Second, out: Path) -> None:
    window, trace = second.window, second.trace
    picture = second.drive.picture(second.second + 0.5)
    event_image = event_images(second.drive.events(second.second, second.second + 1), 5)[2][0]
    # Without the target there is little to be timed.
    timed = second.caption.source == "target"
    figure = Figure(figsize=(10, 10 if timed else 6), layout="constrained")
    grid = figure.add_gridspec(5 if timed else 3, 1, height_ratios=(5, 1, 1.6, 2, 2)[: None if timed else 3])
    large = grid[0].subgridspec(1, 2).subplots(squeeze=False)[0]
    for axes, image, title in zip(
        large, (picture, event_image), ("RGB camera", "event camera, third of five slices"), strict=True
    ):
        axes.imshow(image)
        axes.set_title(title, fontsize=9)
    small = [*window.frames, *window.event_images]
    strip = grid[1].subgridspec(1, len(small), wspace=0.05).subplots(squeeze=False)[0]
    for axes, image in zip(strip, small, strict=True):
        axes.imshow(image)
    strip[0].set_title("what the target sees", fontsize=8, loc="left")
    strip[len(window.frames)].set_title("what the draft sees (not the last)", fontsize=8, loc="left")
    words = figure.add_subplot(grid[2])
    words.axis((0, 1, 0, 1))
    words.text(0, 1, _texts(second), va="top", fontsize=8, family="monospace", in_layout=False)
    for axes in (*large, *strip, words):
        axes.axis("off")
    if timed:
        whole, end = figure.add_subplot(grid[3]), figure.add_subplot(grid[4])
        draw_timeline(whole, trace, legend=False)
        draw_timeline(end, trace)
        begun_ns, closed_ns = trace.marks["last_frame"], trace.marks["closed"]
        ended_ns = max(span.end_ns for span in trace.spans)
        end.set_xlim((begun_ns - closed_ns) / 1e6 - 5, (ended_ns - closed_ns) / 1e6 + 2)
        whole.set_xlabel("")
        end.set_xlabel("ms from the window's close", loc="left")
    figure.savefig(out, dpi=100)


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
