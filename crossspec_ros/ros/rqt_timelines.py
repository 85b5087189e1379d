"""Windows drawn as timelines: caption, the work of target and draft, and the draft's hidden time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from crossspec_ros.captioning.wording import seconds
from crossspec_ros.telemetry.trace import DRAFT_STAGES, ROWS, STAGE_COLOURS, TARGET_STAGES, Span

if TYPE_CHECKING:
    from crossspec_msgs.msg import WindowReport

MAX_WINDOWS = 32
MARGIN, LABELS, ROW, GAP = 8.0, 58.0, 13.0, 3.0
"""Pixels: border, left edge of the bars, height of a row, space between texts."""
INK, FAINT, WRONG, HIDDEN = "#222222", "#888888", "#b03030", "#7a9a5a"
_BARS_HEIGHT = 3 * ROW + 2 * GAP
_OPEN_SHARE = 0.55  # of the width, for the second before the close
_OPEN_MS, _MIN_MS, _MAX_MS = 1000.0, 5.0, 1e9
_NO_BREAK = "\N{NO-BREAK SPACE}"


class LastWindows:
    """The last reports of a captioner; one thread may add while another reads.

    `first_ns` is the earliest start, from which seconds count; `hint` is shown while there is no report.
    """

    def __init__(self) -> None:
        self._reports: deque[WindowReport] = deque(maxlen=MAX_WINDOWS)
        self.first_ns = 0
        self.hint = "no report has come yet"

    def add(self, report: WindowReport) -> None:
        """Add a report."""
        start_ns = _to_ns(report.window_start)
        self.first_ns = min(self.first_ns, start_ns) if self._reports else start_ns
        self._reports.append(report)

    def clear(self, hint: str) -> None:
        """Forget all reports and show this hint."""
        self._reports.clear()
        self.hint = hint

    def newest(self) -> list[WindowReport]:
        """Return all reports, the newest first."""
        return list(reversed(tuple(self._reports)))


def hidden(spans: Sequence[Span]) -> list[tuple[int, int]]:
    """Return when draft work delayed no caption: before the close, or beside the target's work."""
    cover = [(min((span.start_ns for span in spans), default=0), 0)]
    cover += [(span.start_ns, span.end_ns) for span in spans if span.stage in TARGET_STAGES]
    draft = [span for span in spans if span.stage in DRAFT_STAGES]
    cuts = [(max(span.start_ns, a), min(span.end_ns, b)) for span in draft for a, b in cover]
    return [(start, end) for start, end in cuts if start < end]


def draw(canvas: Any, last: LastWindows, width: float, height: float) -> float:
    """Draw the legend and the newest windows, as many as fit but at least one.

    `canvas` has `rect` and `text`, and `size` for a text of limited width, which breaks between words.
    Returns the height that the newest window needs.
    """
    room, reports, needed = width - 2 * MARGIN, last.newest(), 0.0
    if not reports:
        canvas.text(MARGIN, MARGIN, room, FAINT, last.hint)
        return needed
    windows = [_spans(report) for report in reports]
    y = _draw_legend(canvas, windows, width, f"0 s: stamp {last.first_ns / 1e9:.15g} s")
    ends_ms = [max(span.end_ns / 1e6 for span in spans) for spans in windows if spans]
    last_ms = 1.05 * max(_MIN_MS, *ends_ms[: bool(windows[0])], median(ends_ms or [0.0]))
    place = _scale(width, last_ms)
    for ms, label in ((-_OPEN_MS, "-1000 ms"), (0, "close"), (last_ms / 2, f"{last_ms / 2:.0f} ms")):
        canvas.text(place(ms), y, room, FAINT, label)
    y += canvas.size("0", room)[1] + GAP
    for report, spans in zip(reports, windows, strict=True):
        time = seconds(_to_ns(report.window_start), _to_ns(report.header.stamp), last.first_ns)
        head = f"{_NO_BREAK}· ".join(fact.replace(" ", _NO_BREAK) for fact in (time, *_figures(report)))
        texts = ((FAINT, head), (INK if report.level == report.OK else WRONG, report.message))
        heights = [canvas.size(text, room)[1] + GAP for _, text in texts]
        if needed and y + GAP + sum(heights) + _BARS_HEIGHT > height:
            break
        canvas.rect(0, y, width, 1, "#dddddd")
        y += GAP
        for (colour, text), text_height in zip(texts, heights, strict=True):
            canvas.text(MARGIN, y, room, colour, text)
            y += text_height
        _draw_bars(canvas, spans, place, y)
        y += _BARS_HEIGHT
        needed = needed or y
    return needed


def _scale(width: float, last_ms: float) -> Callable[[float], float]:
    """Return the map from ms after the close to pixels, with scales of their own before and after it."""
    right = width - MARGIN
    close = LABELS + (right - LABELS) * _OPEN_SHARE

    def place(ms: float) -> float:
        x = close + ms * ((close - LABELS) / _OPEN_MS if ms < 0 else (right - close) / last_ms)
        return min(right, max(LABELS, x))

    return place


def _draw_bars(canvas: Any, spans: Sequence[Span], place: Callable[[float], float], top: float) -> None:
    bars = {
        name: [
            (span.start_ns, span.end_ns, STAGE_COLOURS[span.stage])
            for span in spans
            if span.stage in ROWS[name]
        ]
        for name in ("target", "draft")
    }
    bars["hidden"] = [(start_ns, end_ns, HIDDEN) for start_ns, end_ns in hidden(spans)]
    for row, (name, drawn) in enumerate(bars.items()):
        y = top + row * ROW
        canvas.text(MARGIN, y - 2, LABELS - MARGIN, FAINT, name)
        for start_ns, end_ns, colour in drawn:
            left, right = place(start_ns / 1e6), place(end_ns / 1e6)
            canvas.rect(left, y, max(1.0, right - left), ROW - 3, colour)
    canvas.rect(place(0), top, 1, 3 * ROW, INK)


def _draw_legend(canvas: Any, windows: Sequence[Sequence[Span]], width: float, last: str) -> float:
    """Draw the stages and the text `last` in as many lines as they need; returns the bottom."""
    seen = {span.stage for spans in windows for span in spans}
    shown = {s: STAGE_COLOURS[s] for row in ("target", "draft") for s in ROWS[row] if s in seen}
    x, y, line = MARGIN, GAP, 0.0
    for stage, colour in {**shown, "hidden": HIDDEN, last: "#ffffff"}.items():
        text = stage.replace("_", _NO_BREAK).replace(" ", _NO_BREAK)
        needed, line = canvas.size(text, width)
        if x > MARGIN and x + 14 + needed > width - MARGIN:
            x, y = MARGIN, y + line
        canvas.rect(x, y + 3, 10, 10, colour)
        canvas.text(x + 14, y, needed, FAINT, text)
        x += 14 + needed + 10
    return y + line


def _to_ns(stamp: Any) -> int:
    return int(stamp.sec * 10**9 + stamp.nanosec)


def _spans(report: WindowReport) -> list[Span]:
    """Return the spans that have a time; they count from the window's close."""
    return [
        Span(span.name, round(span.start_ms * 1e6), round(span.end_ms * 1e6), thread="")
        for span in report.spans
        if abs(span.start_ms) < _MAX_MS and abs(span.end_ms) < _MAX_MS
    ]


def _figures(report: WindowReport) -> list[str]:
    ms = {stage.name: stage.ms for stage in report.stages}
    figures = [f"{name} {ms[name]:.0f} ms" for name in ("total", "hidden") if name in ms]
    if (passes := report.caption.target_passes) and report.outcome == "captioned":
        figures.append(f"{report.caption.tokens} tokens in {passes} target passes")
    figures += [f"{each.accepted} of {each.drafted} by {each.name}" for each in report.proposers]
    figures += ["from events only"] * (report.caption.source == "event_draft")
    figures += ["cut by the deadline"] * report.cut_by_deadline
    return figures + [fault.replace("_", " ") for fault in report.degraded]
