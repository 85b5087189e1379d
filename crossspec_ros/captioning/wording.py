"""Format captions for logs and terminals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from crossspec_ros.errors import plain_text
from crossspec_ros.paths import page
from crossspec_ros.telemetry.trace import LATENCIES, Trace

if TYPE_CHECKING:
    from crossspec_ros.captioning.caption import Caption, Holding
    from crossspec_ros.models.pair import ModelPair
    from crossspec_ros.windows.window import Window

MIN_TOKENS = 1000
"""Minimum vocabulary of a full-size model, which has tens of thousands of tokens. Shipped models have 581."""
WARNING = (
    "the {} has a vocabulary of {} tokens only, as the shipped tiny models do: these were trained on a "
    "synthetic driving world, and their captions of other scenes are meaningless; "
    f"see {page('real_models.md')} to load other models"
)

_SUMS = ("total", "beside_models", "hidden")


def latencies(trace: Trace) -> dict[str, float]:
    """Return a trace's stages in ms, the time outside the models, and `hidden` if the event draft ran."""
    stages = trace.stages
    ordered = {name: stages[name] for name in (*LATENCIES, *stages) if name in stages}
    ordered["beside_models"] = trace.beside_models
    return ordered | ({"hidden": trace.hidden} if "draft_decode" in stages else {})


def plain(faults: Sequence[str]) -> str:
    """Return the names of faults as words."""
    return ", ".join(faults).replace("_", " ")


def absent_text(caption: Caption, faults: Sequence[str]) -> str:
    """Return the reason why a caption has no text."""
    if caption.source == "none":
        return f"nothing to be seen: {plain(faults)}"
    return f"the caption is empty: the model wrote {len(caption.token_ids)} tokens without text"


def seconds(start_ns: int, end_ns: int, origin_ns: int) -> str:
    """Return the label of a window, as in "0-1 s", relative to `origin_ns` or to an earlier start."""
    origin_ns = min(origin_ns, start_ns)
    return f"{(start_ns - origin_ns) / 1e9:.12g}-{(end_ns - origin_ns) / 1e9:.12g} s"


def caption_line(
    window: Window, origin_ns: int, caption: Caption, faults: Sequence[str], holds: Holding | None = None
) -> str:
    """Return the label of a window, relative to `origin_ns`, and its caption.

    The caption of a window that shows nothing new belongs to the window of `holds`.
    """
    time = seconds(window.start_ns, window.end_ns, origin_ns)
    absent = "(nothing seen)" if caption.source == "none" else "(empty caption)"
    head = f"{time}: {plain_text(caption.text) or absent}"
    if holds is not None:
        head += f" [unchanged since {seconds(holds.window.start_ns, holds.window.end_ns, origin_ns)}]"
    if caption.source == "event_draft":
        head += " [from events only]"
    if faults:
        covered = f"partial: {window.covered_ms} ms of it are recorded"
        head += f" [{plain([covered if fault == 'partial' else fault for fault in faults])}]"
    return head


def log_lines(line: str, caption: Caption, stages: Mapping[str, float]) -> str:
    """Return the line of a caption, followed by a line with the time of each stage."""
    parts = [f"{name} {ms:.0f}" for name, ms in stages.items() if name not in _SUMS]
    tail = f"total {stages.get('total', 0.0):.0f} ms: {', '.join(parts)}"
    if "hidden" in stages:
        tail += f"; draft hidden {stages['hidden']:.0f}"
    if caption.source == "target":
        accepted = [f"{caption.accepted.get(p, 0)} of {n} by {p}" for p, n in caption.drafted.items()]
        tail += (
            f"; {len(caption.token_ids)} tokens in {caption.target_passes} target passes, "
            f"accepted {', '.join(accepted) or 'nothing'}"
        )
    return f"{line}\n    {tail}"


def warning(pair: ModelPair) -> str:
    """Return a warning about tiny models, or an empty text for other models.

    The small vocabulary identifies tiny models, also on a target's server.
    """
    for name, model in (("target", pair.target), ("draft", pair.draft)):
        if model is not None and (tokens := model.vocabulary) < MIN_TOKENS:
            return WARNING.format(name, tokens)
    return ""
