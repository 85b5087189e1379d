"""Contents of the rqt plugin: timelines of windows, and curves of their figures."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from crossspec_ros.captioning.wording import seconds
from crossspec_ros.telemetry.trace import DRAFT_STAGES, ROWS, STAGE_COLOURS, Span, hidden_times
from crossspec_ros.windows.grid import SECOND

if TYPE_CHECKING:
    from crossspec_msgs.msg import WindowReport

MAX_WINDOWS = 60
PLOTS = {
    "Latencies of the target (ms)": ("total", "first_token", "target_prefill", "verify", "queue"),
    "Latencies of the draft (ms)": (*DRAFT_STAGES, "hidden"),
    "Tokens per target pass": ("acceptance_length",),
}
"""Titles with units, and the figures in each plot."""
MARGIN, LABELS, ROW, GAP = 8.0, 58.0, 13.0, 3.0
"""Pixels: border, left edge of the bars, height of a row, space between texts."""
INK, FAINT, WRONG, HIDDEN = "#222222", "#888888", "#b03030", "#7a9a5a"
STAGES = {s: STAGE_COLOURS[s] for row in ("target", "draft") for s in ROWS[row]} | {"hidden": HIDDEN}
"""Colours of the bars."""
_BARS_HEIGHT = 3 * ROW + 2 * GAP
_OPEN_SHARE = 0.55  # of the width, for the second before the close
_OPEN_MS, _MIN_MS = 1000.0, 5.0


class LastWindows:
    """The last reports of a captioner. One thread may add while another reads.

    `first_ns` is the earliest start, from which labels count. `hint` is a text to show without reports.
    """

    def __init__(self) -> None:
        self._reports: deque[WindowReport] = deque(maxlen=MAX_WINDOWS)
        self.first_ns = 0
        self.hint = "no report has arrived yet"

    def add(self, report: WindowReport) -> None:
        """Add a report. A backward jump, as of a repeated recording, drops the earlier ones."""
        start_ns = _to_ns(report.window_start)
        if self._reports and start_ns < _to_ns(self._reports[-1].window_start) - SECOND:
            self._reports.clear()
        self.first_ns = min(self.first_ns, start_ns) if self._reports else start_ns
        self._reports.append(report)

    def clear(self, hint: str) -> None:
        """Drop all reports and show this hint."""
        self._reports.clear()
        self.hint = hint

    def newest(self) -> list[WindowReport]:
        """Return all reports, the newest first."""
        return list(reversed(tuple(self._reports)))


def series(last: LastWindows, name: str) -> tuple[list[float], list[float]]:
    """Return the times in s of the windows with this figure, and its values."""
    times, values = [], []
    for report in reversed(last.newest()):
        figures = {stage.name: stage.ms for stage in report.stages}
        if report.acceptance_length:
            figures["acceptance_length"] = report.acceptance_length
        if name in figures:
            times.append((_to_ns(report.window_start) - last.first_ns) / 1e9)
            values.append(figures[name])
    return times, values


def legend(colours: Mapping[str, str]) -> str:
    """Return colours and names as HTML with line breaks between the names only."""
    return " &nbsp;".join(
        f'<span style="color: {colour}">\N{BLACK SQUARE}</span>&nbsp;{name.replace("_", "&nbsp;")}'
        for name, colour in colours.items()
    )


def draw(canvas: Any, last: LastWindows, width: float, height: float) -> None:
    """Draw the newest windows that fit, at least one.

    `canvas` has `rect`, `text`, and `size` for a text that breaks between words at a width.
    """
    room, right, reports = width - 2 * MARGIN, width - MARGIN, last.newest()
    if not reports:
        canvas.text(MARGIN, MARGIN, room, FAINT, last.hint)
        return
    windows = [_spans(report) for report in reports]
    ends_ms = [max(span.end_ns / 1e6 for span in spans) for spans in windows if spans]
    last_ms = 1.05 * max(_MIN_MS, *ends_ms[: bool(windows[0])], median(ends_ms or [0.0]))
    close = LABELS + (right - LABELS) * _OPEN_SHARE

    def place(ms: float) -> float:
        """Return the x of a time after the close. Times before it have another scale."""
        x = close + ms * ((close - LABELS) / _OPEN_MS if ms < 0 else (right - close) / last_ms)
        return min(right, max(LABELS, x))

    for ms, label in ((-_OPEN_MS, "-1000 ms"), (0, "close"), (last_ms / 2, f"{last_ms / 2:.0f} ms")):
        canvas.text(place(ms), GAP, room, FAINT, label)
    y = canvas.size("0", room)[1] + 2 * GAP
    for number, (report, spans) in enumerate(zip(reports, windows, strict=True)):
        time = seconds(_to_ns(report.window_start), _to_ns(report.header.stamp), last.first_ns)
        head = " · ".join((time, *_figures(report)))
        texts = ((FAINT, head), (INK if report.level == report.OK else WRONG, report.message))
        heights = [canvas.size(text, room)[1] + GAP for _, text in texts]
        if number and y + GAP + sum(heights) + _BARS_HEIGHT > height:
            break
        canvas.rect(0, y, width, 1, "#dddddd")
        y += GAP
        for (colour, text), text_height in zip(texts, heights, strict=True):
            canvas.text(MARGIN, y, room, colour, text)
            y += text_height
        _draw_bars(canvas, spans, place, y)
        y += _BARS_HEIGHT


def _draw_bars(canvas: Any, spans: Sequence[Span], place: Callable[[float], float], top: float) -> None:
    rows = {name: [span for span in spans if span.stage in ROWS[name]] for name in ("target", "draft")}
    bars = {n: [(s.start_ns, s.end_ns, STAGE_COLOURS[s.stage]) for s in row] for n, row in rows.items()}
    bars["hidden"] = [(start_ns, end_ns, HIDDEN) for start_ns, end_ns in hidden_times(spans, 0)]
    for row, (name, drawn) in enumerate(bars.items()):
        y = top + row * ROW
        canvas.text(MARGIN, y - 2, LABELS - MARGIN, FAINT, name)
        for start_ns, end_ns, colour in drawn:
            left, right = place(start_ns / 1e6), place(end_ns / 1e6)
            canvas.rect(left, y, max(1.0, right - left), ROW - 3, colour)
    canvas.rect(place(0), top, 1, 3 * ROW, INK)


def _to_ns(stamp: Any) -> int:
    return int(stamp.sec * 10**9 + stamp.nanosec)


def _spans(report: WindowReport) -> list[Span]:
    """Return the spans by start, relative to the window's close."""
    spans = [Span(s.name, round(s.start_ms * 1e6), round(s.end_ms * 1e6), "") for s in report.spans]
    return sorted(spans, key=lambda span: span.start_ns)


def _figures(report: WindowReport) -> list[str]:
    ms = {stage.name: stage.ms for stage in report.stages}
    figures = [f"{name} {ms[name]:.0f} ms" for name in ("total", "hidden") if name in ms]
    if (passes := report.caption.target_passes) and report.outcome == "captioned":
        figures.append(f"{report.caption.tokens} tokens in {passes} target passes")
    figures += [f"{each.accepted} of {each.drafted} by {each.name}" for each in report.proposers]
    figures += ["from events only"] * (report.caption.source == "event_draft")
    figures += ["cut by the deadline"] * report.cut_by_deadline
    return figures + [fault.replace("_", " ") for fault in report.degraded]
