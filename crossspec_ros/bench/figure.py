"""`crossspec bench figure`: one window as both models saw it, what they said, and when each stage ran."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from crossspec_ros.bench.captions import window_of
from crossspec_ros.bench.live import live
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.images import event_images
from crossspec_ros.paths import share_dir
from crossspec_ros.speculation.assembly import speculative_decoder
from crossspec_ros.speculation.caption import Caption
from crossspec_ros.telemetry.timeline import draw_timeline
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.training.world.camera import events, frame
from crossspec_ros.training.world.grammar import QUESTION
from crossspec_ros.training.world.grammar import caption as true_caption
from crossspec_ros.training.world.scene import drive
from crossspec_ros.vlm.loading import load_pair
from crossspec_ros.windows.window import Window


def run(args: argparse.Namespace) -> int:
    """Caption second `args.second` of drive `args.seed` and draw it to `args.out`."""
    pair = load_pair(args.models or share_dir() / "models" / "tiny")
    scenes = drive(args.seed, args.second + 2)
    window = window_of(pair, scenes, args.seed, args.second)
    decoder = speculative_decoder(pair)
    # The memory knows the seconds before this one, as that of a running node does.
    for second in range(max(0, args.second - 1)):
        live(decoder, window_of(pair, scenes, args.seed, second), Trace(), QUESTION)
    drafts: list[str] = []
    trace = Trace()
    caption = live(decoder, window, trace, QUESTION, drafts.append)
    decoder.close()
    batch = EventBatch.concat(list(events(scenes, args.seed, args.second, args.second + 1)))
    picture = frame(scenes, args.seed, args.second + 0.5)
    texts = _texts(
        caption,
        drafts[0] if drafts else "(not done when the window closed)",
        true_caption(scenes[args.second]),
    )
    _draw(picture, event_images(batch, 5)[2][0], window, texts, trace, args.out)
    print(args.out)
    return 0


def _texts(caption: Caption, draft: str, truth: str) -> str:
    taken = [f"{caption.accepted.get(p, 0)} of {n} accepted from {p}" for p, n in caption.drafted.items()]
    blocks = {
        "verified caption": caption.text,
        "event draft": draft,
        "ground truth": "as the verified caption" if truth == caption.text else truth,
        "verified in": f"{caption.target_passes} target passes for {len(caption.token_ids)} tokens; "
        + ", ".join(taken),
    }
    return "\n".join(
        textwrap.fill(f"{name}: {text}", 125, subsequent_indent="    ") for name, text in blocks.items()
    )


def _draw(
    picture: np.ndarray, event_image: np.ndarray, window: Window, texts: str, trace: Trace, out: Path
) -> None:
    figure = Figure(figsize=(10, 10), layout="constrained")
    grid = figure.add_gridspec(5, 1, height_ratios=(5, 1, 1.6, 2, 2))
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
    words.text(
        0, 1, texts, va="top", fontsize=8, family="monospace", transform=words.transAxes, in_layout=False
    )
    for axes in (*large, *strip, words):
        axes.axis("off")
    whole, end = figure.add_subplot(grid[3]), figure.add_subplot(grid[4])
    draw_timeline(whole, trace, legend=False)
    draw_timeline(end, trace)
    closed = trace.marks["closed"]
    end.set_xlim(-5, (max(span.end_ns for span in trace.spans) - closed) / 1e6 + 2)
    whole.set_xlabel("")
    end.set_xlabel("ms from the window's close", loc="left")
    figure.savefig(out, dpi=100)
