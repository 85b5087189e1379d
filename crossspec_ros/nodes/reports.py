"""What the captioner says about a window: the report message and the line in the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus

from crossspec_ros.nodes.messages import key_values, to_time
from crossspec_ros.telemetry.trace import LATENCIES, Trace

if TYPE_CHECKING:
    from crossspec_ros.speculation.caption import Caption
    from crossspec_ros.windows.window import Window


def latencies(trace: Trace) -> dict[str, float]:
    """Every stage of the trace in ms, what no model took, and `hidden` when the draft model worked at all."""
    stages = trace.stages
    ordered = {name: stages[name] for name in (*LATENCIES, *stages) if name in stages}
    ordered["beside_models"] = trace.beside_models
    return ordered | ({"hidden": trace.hidden} if "draft_decode" in stages else {})


def report(window: Window, level: bytes, message: str, values: Mapping[str, object]) -> DiagnosticArray:
    """The report of one window, whatever became of it; values are written as text."""
    array = DiagnosticArray()
    array.header.stamp = to_time(window.end_ns)
    start = f"{window.start_ns // 1_000_000_000}.{window.start_ns % 1_000_000_000:09d}"
    texts = {key: f"{value:.3f}" if isinstance(value, float) else str(value) for key, value in values.items()}
    status = DiagnosticStatus(level=level, name="captioner", message=message, hardware_id="")
    told = ("events", "lost_packets", "late_events", "late_frames")
    counts = {name: str(getattr(window, name)) for name in told}
    status.values = key_values({"window_start": start, **counts, **texts})
    array.status = [status]
    return array


RESTS_ON = {"target": "frames", "event_draft": "events", "none": "nothing"}
"""What was looked at for a caption, by its source."""


def caption_values(caption: Caption) -> dict[str, object]:
    """What a caption is made of."""
    return {
        "caption_source": caption.source,
        "rests_on": RESTS_ON[caption.source],
        "cut_by_deadline": caption.late,
        "tokens": len(caption.token_ids),
        "target_passes": caption.target_passes,
        "mean_acceptance_length": caption.mean_acceptance_length,
        **{f"drafted/{proposer}": count for proposer, count in caption.drafted.items()},
        **{f"accepted/{proposer}": caption.accepted.get(proposer, 0) for proposer in caption.drafted},
    }


_SUMS = ("total", "beside_models", "hidden")


def plain(faults: Sequence[str]) -> str:
    """What is wrong with a window's inputs, for people."""
    return ", ".join(faults).replace("_", " ")


def caption_line(window: Window, origin_ns: int, caption: Caption, faults: Sequence[str]) -> str:
    """The caption for people, who count the seconds from `origin_ns`."""
    start_s, end_s = (window.start_ns - origin_ns) / 1e9, (window.end_ns - origin_ns) / 1e9
    head = f"{start_s:g}-{end_s:g} s: {caption.text or '(nothing seen)'}"
    if caption.source == "event_draft":
        head += " [from events only]"
    if faults:
        head += f" [{plain(faults)}]"
    return head


def log_lines(
    window: Window, origin_ns: int, caption: Caption, stages: Mapping[str, float], faults: Sequence[str]
) -> str:
    """Likewise, and where the time went."""
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
    return f"{caption_line(window, origin_ns, caption, faults)}\n    {tail}"
