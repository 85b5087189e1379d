"""A caption in words for people: what is seen, what was wrong with the inputs, and where the time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from crossspec_ros.paths import page
from crossspec_ros.plain_text import plain_text
from crossspec_ros.telemetry.trace import LATENCIES, Trace

if TYPE_CHECKING:
    from crossspec_ros.captioning.caption import Caption
    from crossspec_ros.models.pair import ModelPair
    from crossspec_ros.windows.window import Window

FEWEST_TOKENS = 1000
"""Checkpoints that speak of the world have tens of thousands; the tiny ones that are shipped 577 to 581."""
WARNING = (
    "the {} has {} tokens for all its words, as the tiny models that are shipped: these know the synthetic "
    "driving world only, and what they say of any other scene means nothing; "
    f"{page('real_models.md')} says how to load others"
)

_SUMS = ("total", "beside_models", "hidden")


def latencies(trace: Trace) -> dict[str, float]:
    """Every stage of the trace in ms, what no model took, and `hidden` when the draft model worked at all."""
    stages = trace.stages
    ordered = {name: stages[name] for name in (*LATENCIES, *stages) if name in stages}
    ordered["beside_models"] = trace.beside_models
    return ordered | ({"hidden": trace.hidden} if "draft_decode" in stages else {})


def plain(faults: Sequence[str]) -> str:
    """Faults of a window's inputs, for people."""
    return ", ".join(faults).replace("_", " ")


def absent_text(caption: Caption, faults: Sequence[str]) -> str:
    """Return the reason why a caption has no text."""
    if caption.source == "none":
        return f"nothing to be seen: {plain(faults)}"
    return f"the caption is empty: the model wrote {len(caption.token_ids)} tokens without text"


def seconds(start_ns: int, end_ns: int, origin_ns: int) -> str:
    """Return the label of a window, as in "0-1 s", from `origin_ns` on, or from itself if it is earlier."""
    origin_ns = min(origin_ns, start_ns)
    return f"{(start_ns - origin_ns) / 1e9:.12g}-{(end_ns - origin_ns) / 1e9:.12g} s"


def caption_line(
    window: Window,
    origin_ns: int,
    caption: Caption,
    faults: Sequence[str],
    holds_ns: int | None = None,
) -> str:
    """The caption for people, who count the seconds from `origin_ns`; where the window shows nothing new,
    that of the one that ends at `holds_ns`."""
    time = seconds(window.start_ns, window.end_ns, origin_ns)
    absent = "(nothing seen)" if caption.source == "none" else "(empty caption)"
    head = f"{time}: {plain_text(caption.text) or absent}"
    if holds_ns is not None:
        length_ns = window.end_ns - window.start_ns
        head += f" [unchanged since {seconds(holds_ns - length_ns, holds_ns, origin_ns)}]"
    if caption.source == "event_draft":
        head += " [from events only]"
    if faults:
        covered = f"partial: {window.covered_ms} ms of it were recorded"
        head += f" [{plain([covered if fault == 'partial' else fault for fault in faults])}]"
    return head


def log_lines(line: str, caption: Caption, stages: Mapping[str, float]) -> str:
    """The line of a caption, and below it where the time went."""
    parts = [f"{name} {ms:.0f}" for name, ms in stages.items() if name not in _SUMS]
    tail = f"total {stages.get('total', 0.0):.0f} ms: {', '.join(parts)}"
    if "hidden" in stages:
        tail += f"; draft hidden {stages['hidden']:.0f}"
    if caption.source == "target":
        taken = ", ".join(f"{caption.accepted.get(p, 0)} of {n} by {p}" for p, n in caption.drafted.items())
        tail += (
            f"; {len(caption.token_ids)} tokens in {caption.target_passes} target passes, "
            f"accepted {taken or 'nothing'}"
        )
    return f"{line}\n    {tail}"


def warning(pair: ModelPair) -> str:
    """Sentence to tell once before tiny models caption, whatever the camera; empty of others.

    They have a small vocabulary, which a target's server sends too.
    """
    for name, model in (("target", pair.target), ("draft", pair.draft)):
        if model is not None and (tokens := model.vocabulary) < FEWEST_TOKENS:
            return WARNING.format(name, tokens)
    return ""
