"""Messages about a window and its caption, and its report as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from crossspec_msgs.msg import Caption as CaptionMessage
from crossspec_msgs.msg import ProposerCount, Stage, WindowReport
from crossspec_msgs.msg import Span as SpanMessage
from std_msgs.msg import Header

from crossspec_ros.captioning.caption import RESTS_ON
from crossspec_ros.captioning.wording import absent_text, latencies
from crossspec_ros.events.cdr import to_ns
from crossspec_ros.ros.messages import FIRST_NS, to_time
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.quality import HARMLESS, trustworthy

if TYPE_CHECKING:
    from crossspec_ros.captioning.caption import Caption
    from crossspec_ros.windows.window import Window


def report(
    window: Window, outcome: str, text: str, degraded: Sequence[str] = (), dropped: int = 0
) -> WindowReport:
    """The report of one window, whatever became of it; `dropped` windows were skipped so far."""
    level, usable = _LEVELS[outcome], trustworthy(window, degraded)
    if set(degraded) - HARMLESS:
        level = max(level, WindowReport.WARN)
    return WindowReport(
        header=Header(stamp=to_time(window.end_ns)),
        window_start=to_time(max(window.start_ns, FIRST_NS)),
        level=level,
        outcome=outcome,
        message=text,
        degraded=list(degraded),
        events=window.events,
        lost_packets=window.lost_packets,
        late_events=window.late_events,
        late_frames=window.late_frames,
        covered_ms=window.covered_ms,
        missing_images=min(window.missing, 2**32 - 1),
        frames=len(usable.frames),
        event_images=len(usable.event_images),
        dropped_windows=dropped,
    )


_LEVELS = {
    "captioned": WindowReport.OK,
    "unchanged": WindowReport.OK,
    "unasked": WindowReport.OK,
    "skipped": WindowReport.WARN,
    "inactive": WindowReport.WARN,
    "failed": WindowReport.ERROR,
}


def captioned_report(
    window: Window, caption: Caption, trace: Trace, degraded: Sequence[str], dropped: int
) -> WindowReport:
    """The report of a window that has got its caption."""
    message = report(window, "captioned", caption.text or absent_text(caption, degraded), degraded, dropped)
    if caption.source != "target" or not caption.text:
        message.level = WindowReport.WARN
    message.caption = caption_message(caption, window.end_ns)
    message.rests_on = RESTS_ON[caption.source]
    message.cut_by_deadline = caption.late
    message.acceptance_length = float(caption.mean_acceptance_length)
    message.proposers = [
        ProposerCount(name=name, drafted=count, accepted=caption.accepted.get(name, 0))
        for name, count in caption.drafted.items()
    ]
    rehearsal = caption.rehearsal
    message.rehearsal_tokens, message.rehearsal_passes = len(rehearsal.token_ids), rehearsal.passes
    message.rehearsal_ms = 1e3 * rehearsal.seconds
    message.rehearsal_equal = bool(rehearsal.token_ids) and rehearsal.token_ids == caption.token_ids
    message.link_bytes_up, message.link_bytes_down = caption.traffic
    message.link_round_trip_ms = 1e3 * caption.round_trip_s
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
        "frames",
        "event_images",
        "dropped_windows",
        "rehearsal_tokens",
        "rehearsal_passes",
        "rehearsal_ms",
        "rehearsal_equal",
    )
    return {
        "end_ns": to_ns(message.header.stamp),
        "outcome": message.outcome,
        "message": message.message,
        "source": message.caption.source,
        "acceptance_length": message.acceptance_length,
        "stages": {stage.name: stage.ms for stage in message.stages},
        "link_bytes_up": message.link_bytes_up,
        "link_bytes_down": message.link_bytes_down,
        "link_round_trip_ms": message.link_round_trip_ms,
        **{name: getattr(message, name) for name in counts},
    }
