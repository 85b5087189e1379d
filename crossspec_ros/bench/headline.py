"""How long captions take after the window's close, by decoder, as bars from a file of `bench latency`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

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
    try:
        figures = json.loads(measured.read_text())
        rows = [figures["modes"][name]["caption_ms"] for name in NAMES]
        title = headline(figures)
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            f"'{measured}' is no file of crossspec bench latency --json: name one, as "
            f"docs/benchmarks/latency.json"
        ) from None
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots()
    medians = [row["median"] for row in rows]
    spreads = [[row["median"] - row["p10"] for row in rows], [row["p90"] - row["median"] for row in rows]]
    colours = ["#31a354", *["#969696"] * (len(rows) - 1)]
    axes.barh(range(len(rows)), medians, xerr=spreads, color=colours, ecolor="#404040", capsize=2)
    for i, row in enumerate(rows):
        axes.annotate(f" {row['median']:.0f} ms", (row["p90"], i), va="center", fontsize=9)
    axes.set_yticks(range(len(rows)), list(NAMES.values()), fontsize=9)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlim(0, 1.12 * max(row["p90"] for row in rows))
    axes.set_xlabel("ms from the end of a second to its caption: median, 10th to 90th percentile", fontsize=9)
    axes.set_title(title, fontsize=10)
    figure.savefig(out, dpi=100)


def headline(figures: dict[str, Any]) -> str:
    """The sentence that the README begins with, in figures."""
    ours, target = (figures["modes"][name]["caption_ms"]["median"] for name in ("ours", "autoregressive"))
    ratio = figures["close_to_caption_ratio"]
    return f"{ratio:.1f}x sooner: {ours:.0f} ms instead of {target:.0f} ms ({figures['windows']} windows)"
