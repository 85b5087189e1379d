"""How long captions take after the window's close, by decoder, as bars from a file of `bench latency`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from crossspec_ros.bench.harness import draw_bars
from crossspec_ros.errors import InputError

NAMES = {
    "ours": "crossspec_ros",
    "ours, no draft": "the target alone,\nreading frames as they come",
    "fixed gamma 4": "speculative decoding,\n4 draft tokens a round",
    "autoregressive": "the target alone",
    "generate, plain": "transformers generate",
    "generate, assisted": "transformers generate,\nassisted by the draft",
}
"""Decoders that are shown, by their names in the file."""


def draw_headline(measured: Path, out: Path) -> None:
    """Draw the medians as bars, with the 10th to 90th percentiles; raises InputError for another file."""
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots()
    try:
        figures = json.loads(measured.read_text())
        draw_bars(axes, figures["modes"], NAMES, "caption_ms")
        axes.set_title(headline(figures), fontsize=10)
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            f"'{measured}' is no file of crossspec bench latency --json: name one, as "
            f"docs/benchmarks/latency.json"
        ) from None
    figure.savefig(out, dpi=100)


def headline(figures: dict[str, Any]) -> str:
    """The sentence that the README begins with, in figures."""
    ours, target = (figures["modes"][name]["caption_ms"]["median"] for name in ("ours", "autoregressive"))
    ratio = figures["close_to_caption_ratio"]
    return f"{ratio:.1f}x sooner: {ours:.0f} ms instead of {target:.0f} ms ({figures['windows']} windows)"
