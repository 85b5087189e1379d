"""What the captioner says about a window: the report message and the line in the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from crossspec_msgs.msg import Caption as CaptionMessage
from crossspec_msgs.msg import ProposerCount, Stage, WindowReport
from crossspec_msgs.msg import Span as SpanMessage
from std_msgs.msg import Header

from crossspec_ros.captioning.caption import RESTS_ON
from crossspec_ros.ros.messages import to_ns, to_time
from crossspec_ros.telemetry.trace import LATENCIES, Trace
from crossspec_ros.windows.quality import HARMLESS

if TYPE_CHECKING:
    from crossspec_ros.captioning.caption import Caption
    from crossspec_ros.windows.window import Window


def latencies(trace: Trace) -> dict[str, float]:
    """Every stage of the trace in ms, what no model took, and `hidden` when the draft model worked at all."""
    stages = trace.stages
    ordered = {name: stages[name] for name in (*LATENCIES, *stages) if name in stages}
    ordered["beside_models"] = trace.beside_models
    return ordered | ({"hidden": trace.hidden} if "draft_decode" in stages else {})


def report(
    window: Window, outcome: str, text: str, degraded: Sequence[str] = (), dropped: int = 0
) -> WindowReport:
    """The report of one window, whatever became of it; `dropped` windows were skipped so far."""
    return WindowReport(
        header=Header(stamp=to_time(window.end_ns)),
        window_start=to_time(window.start_ns),
        level=_LEVELS[outcome],
        outcome=outcome,
        message=text,
        degraded=list(degraded),
        events=window.events,
        lost_packets=window.lost_packets,
        late_events=window.late_events,
        late_frames=window.late_frames,
        covered_ms=window.covered_ms,
        missing_images=window.missing,
        dropped_windows=dropped,
    )


_LEVELS = {
    "captioned": WindowReport.OK,
    "skipped": WindowReport.WARN,
    "inactive": WindowReport.WARN,
    "failed": WindowReport.ERROR,
}


def captioned_report(
    window: Window, caption: Caption, trace: Trace, degraded: Sequence[str], dropped: int
) -> WindowReport:
    """The report of a window that has got its caption."""
    text = caption.text or f"nothing to be seen: {plain(degraded)}"
    message = report(window, "captioned", text, degraded, dropped)
    if caption.source != "target" or set(degraded) - HARMLESS:
        message.level = WindowReport.WARN
    message.caption = caption_message(caption, window.end_ns)
    message.rests_on = RESTS_ON[caption.source]
    message.cut_by_deadline = caption.late
    message.acceptance_length = float(caption.mean_acceptance_length)
    message.proposers = [
        ProposerCount(name=name, drafted=count, accepted=caption.accepted.get(name, 0))
        for name, count in caption.drafted.items()
    ]
    message.stages = [Stage(name=name, ms=ms) for name, ms in latencies(trace).items()]
    closed_ns = trace.marks["closed"]
    message.spans = [
        SpanMessage(
            name=span.name,
            start_ms=(span.start_ns - closed_ns) / 1e6,
            end_ms=(span.end_ns - closed_ns) / 1e6,
        )
        for span in trace.spans
    ]
    return message


def caption_message(caption: Caption, end_ns: int) -> CaptionMessage:
    """A caption of the window that ends there."""
    return CaptionMessage(
        header=Header(stamp=to_time(end_ns)),
        text=caption.text,
        source=caption.source,
        verified=caption.source == "target",
        tokens=len(caption.token_ids),
        target_passes=caption.target_passes,
    )


def report_values(message: WindowReport) -> dict[str, Any]:
    """A report as JSON has it; stages in ms."""
    counts = (
        "events",
        "lost_packets",
        "late_events",
        "late_frames",
        "covered_ms",
        "missing_images",
        "dropped_windows",
    )
    return {
        "end_ns": to_ns(message.header.stamp),
        "outcome": message.outcome,
        "message": message.message,
        "source": message.caption.source,
        "acceptance_length": message.acceptance_length,
        "stages": {stage.name: stage.ms for stage in message.stages},
        **{name: getattr(message, name) for name in counts},
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
