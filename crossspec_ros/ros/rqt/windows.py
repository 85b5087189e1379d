"""The last captioned windows, out of the captioner's reports."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crossspec_ros.telemetry.trace import DRAFT_STAGES, TARGET_STAGES, Span

if TYPE_CHECKING:
    from builtin_interfaces.msg import Time
    from crossspec_msgs.msg import WindowReport

KEPT = 32
_LONGEST_MS = 1e9
"""More is no time of a window, nor is what is no number."""
# Of one window, so that whoever publishes a report cannot keep the window of rqt busy.
_MOST_SPANS = 1000
_MOST_TEXT = 2000
_MOST_FIGURES = 50
_MOST_NAME = 100


@dataclass(frozen=True)
class Captioned:
    """One window: its times by stamps, its caption or why it has none, whether that is as it should be.

    Spans count from the window's close; `figures` are short phrases about the caption and its inputs.
    """

    start_ns: int
    end_ns: int
    text: str
    is_good: bool
    spans: tuple[Span, ...]
    figures: tuple[str, ...]

    @property
    def hidden(self) -> list[tuple[int, int]]:
        """Times of draft work that nobody waited for: the window was open, or the target at work itself."""
        cover = [(min((span.start_ns for span in self.spans), default=0), 0)]
        cover += [(span.start_ns, span.end_ns) for span in self.spans if span.stage in TARGET_STAGES]
        draft = [span for span in self.spans if span.stage in DRAFT_STAGES]
        cuts = [(max(span.start_ns, a), min(span.end_ns, b)) for span in draft for a, b in cover]
        return [(start, end) for start, end in cuts if start < end]


class LastWindows:
    """Keeps the last `KEPT` windows, however fast they come; one thread may add while another reads.

    `first_ns` is the earliest start that was seen: people count seconds from there, as the log does from the
    captioner's first one. `hint` is what to say while there are no windows; `changes` counts all of this.
    """

    def __init__(self) -> None:
        self._windows: deque[Captioned] = deque(maxlen=KEPT)
        self.first_ns = self.changes = 0
        self.hint = "no report has come yet"

    def add(self, report: WindowReport) -> None:
        """Take a report; spans whose times cannot be are left out."""
        spans = tuple(
            Span(span.name[:_MOST_NAME], round(span.start_ms * 1e6), round(span.end_ms * 1e6), thread="")
            for span in report.spans[:_MOST_SPANS]
            if abs(span.start_ms) < _LONGEST_MS and abs(span.end_ms) < _LONGEST_MS
        )
        start_ns = _ns(report.window_start)
        self.first_ns = min(self.first_ns, start_ns) if self._windows else start_ns
        self._windows.append(
            Captioned(
                start_ns=start_ns,
                end_ns=_ns(report.header.stamp),
                text=report.message[:_MOST_TEXT],
                is_good=report.level == report.OK,
                spans=spans,
                figures=tuple(figure[:_MOST_NAME] for figure in _figures(report)[:_MOST_FIGURES]),
            )
        )
        self.changes += 1

    def clear(self, hint: str) -> None:
        """Forget all of them, as when another captioner is watched, and say this until the next one."""
        self._windows.clear()
        self.hint = hint
        self.changes += 1

    def newest(self) -> list[Captioned]:
        """All of them, the newest first."""
        return list(reversed(tuple(self._windows)))


def _ns(stamp: Time) -> int:
    return int(stamp.sec * 10**9 + stamp.nanosec)


def _figures(report: WindowReport) -> list[str]:
    taken = {stage.name: stage.ms for stage in report.stages}
    told = [f"{name} {taken[name]:.0f} ms" for name in ("total", "hidden") if name in taken]
    # Of a window that shows nothing new it is the caption of an earlier one.
    if (passes := report.caption.target_passes) and report.outcome == "captioned":
        told.append(f"{report.caption.tokens} tokens in {passes} target passes")
    told += [f"{each.accepted} of {each.drafted} by {each.name}" for each in report.proposers]
    if report.caption.source == "event_draft":
        told.append("from events only")
    if report.caption.lossy:
        told.append("lossy: aligned event features for frames")
    if report.cut_by_deadline:
        told.append("cut by the deadline")
    return told + [fault.replace("_", " ") for fault in report.degraded]
