"""Draws windows as timelines below one another: target, draft, the draft's hidden time, and the caption."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Protocol

from crossspec_ros.rqt.windows import Captioned
from crossspec_ros.telemetry.timeline import COLOURS, ROWS

HEIGHT = 112.0
"""Of one window, in pixels."""
MARGIN, LABELS, ROW, LINE = 8.0, 58.0, 13.0, 17.0
INK, FAINT, WRONG, HIDDEN = "#222222", "#888888", "#b03030", "#7a9a5a"
_OPEN, _MOST_MS, _LEAST_MS = 0.55, 1000.0, 5.0
"""The second before the close takes this share of the width: what comes after is short, and matters more."""


class Canvas(Protocol):
    """What is drawn on; the origin is at the top left, colours are `#rrggbb`."""

    def rect(self, x: float, y: float, width: float, height: float, colour: str) -> None: ...

    def text(self, x: float, y: float, width: float, height: float, colour: str, text: str) -> None: ...


def fits(height: float) -> int:
    """How many windows there is room for."""
    return max(1, int((height - 2 * LINE) // HEIGHT))


def draw(canvas: Canvas, windows: Sequence[Captioned], width: float, height: float) -> None:
    """Draw the windows that fit, in the order given, all on one scale."""
    windows = windows[: fits(height)]
    if not windows:
        canvas.text(MARGIN, MARGIN, width - 2 * MARGIN, LINE, FAINT, "no report has come yet")
        return
    last_ms = _last_ms(windows)
    scale = _Scale(LABELS, width - MARGIN, last_ms)
    for i, window in enumerate(windows):
        _draw_window(canvas, window, scale, i * HEIGHT, width)
    y = len(windows) * HEIGHT
    for ms, told in (
        (-_MOST_MS, f"-{_MOST_MS:.0f} ms"),
        (0, "close"),
        (last_ms / 2, f"{last_ms / 2:.0f} ms"),
    ):
        canvas.text(scale.x(ms), y, 70, LINE, FAINT, told)
    _draw_legend(canvas, windows, y + LINE)


def _last_ms(windows: Sequence[Captioned]) -> float:
    """Where the scale ends; a window that took much longer than the others runs off it, or hides them."""
    ends = [max((span.end_ns / 1e6 for span in window.spans), default=0.0) for window in windows]
    return max(_LEAST_MS, min(max(ends), 3 * median(ends)))


class _Scale:
    """Milliseconds from the close to pixels, before and after it on scales of their own."""

    def __init__(self, left: float, right: float, last_ms: float) -> None:
        self._left, self._right, self._close = left, right, left + (right - left) * _OPEN
        self._before = (self._close - left) / _MOST_MS
        self._after = (right - self._close) / last_ms

    def x(self, ms: float) -> float:
        return min(self._right, max(self._left, self._close + ms * (self._before if ms < 0 else self._after)))


def _draw_window(canvas: Canvas, window: Captioned, scale: _Scale, top: float, width: float) -> None:
    canvas.rect(0, top, width, 1, "#dddddd")
    room = width - 2 * MARGIN
    canvas.text(
        MARGIN, top + 2, room, LINE, FAINT, f"{window.end_s - 1:.0f}-{window.end_s:.0f} s   {window.figures}"
    )
    canvas.text(MARGIN, top + 2 + LINE, room, 2 * LINE, INK if window.is_good else WRONG, window.text)
    y = top + 6 + 3 * LINE
    for name in ("target", "draft"):
        canvas.text(MARGIN, y - 2, LABELS - MARGIN, LINE, FAINT, name)
        for span in window.spans:
            if span.stage in ROWS[name]:
                _draw_bar(canvas, scale, y, span.start_ns, span.end_ns, COLOURS[span.stage])
        y += ROW
    canvas.text(MARGIN, y - 2, LABELS - MARGIN, LINE, FAINT, "hidden")
    for start_ns, end_ns in window.hidden:
        _draw_bar(canvas, scale, y, start_ns, end_ns, HIDDEN)
    canvas.rect(scale.x(0), top + 6 + 3 * LINE, 1, 3 * ROW, INK)


def _draw_bar(canvas: Canvas, scale: _Scale, y: float, start_ns: int, end_ns: int, colour: str) -> None:
    left, right = scale.x(start_ns / 1e6), scale.x(end_ns / 1e6)
    canvas.rect(left, y, max(1.0, right - left), ROW - 3, colour)


def _draw_legend(canvas: Canvas, windows: Sequence[Captioned], y: float) -> None:
    seen = {span.stage for window in windows for span in window.spans}
    x = MARGIN
    shown = {stage: COLOURS[stage] for row in ("target", "draft") for stage in ROWS[row] if stage in seen}
    for stage, colour in {**shown, "hidden": HIDDEN}.items():
        canvas.rect(x, y + 4, 10, 10, colour)
        canvas.text(x + 14, y, 100, LINE, FAINT, stage.replace("_", " "))
        x += 24 + 7 * len(stage)
