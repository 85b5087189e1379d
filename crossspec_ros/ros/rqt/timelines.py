"""Draws windows as timelines below one another: target, draft, the draft's hidden time, and the caption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from crossspec_ros.captioning.wording import seconds
from crossspec_ros.ros.rqt.windows import Captioned, LastWindows
from crossspec_ros.telemetry.timeline import COLOURS, ROWS

MARGIN = 8.0
"""Pixels of the border, as all lengths here are in pixels."""
LABELS = 58.0
"""Left edge of the bars."""
ROW = 13.0
"""Height of a row of bars."""
GAP = 3.0
"""Space between texts."""
INK = "#222222"
FAINT = "#888888"
WRONG = "#b03030"
HIDDEN = "#7a9a5a"
_PAPER = "#ffffff"
_BARS = 3 * ROW + 2 * GAP
_OPEN = 0.55
"""Share of the width for the second before the close: what comes after is short, and matters more."""
_MOST_MS = 1000.0
_LEAST_MS = 5.0
_ROOM = 1.05
_NO_BREAK = "\N{NO-BREAK SPACE}"


class Canvas(Protocol):
    """A surface; the origin is at the top left, colours are `#rrggbb`, texts break between words."""

    def rect(self, x: float, y: float, width: float, height: float, colour: str) -> None: ...

    def text(self, x: float, y: float, width: float, colour: str, text: str) -> None: ...

    def size(self, text: str, width: float) -> tuple[float, float]:
        """Width and height of a text whose lines are at most so wide."""


def draw(canvas: Canvas, last: LastWindows, width: float, height: float) -> float:
    """Draw the legend, then the newest windows, on one scale: as many as fit whole, but at least one.

    Returns the height that the newest one needs.
    """
    room = width - 2 * MARGIN
    windows, first_ns = last.newest(), last.first_ns
    if not windows:
        canvas.text(MARGIN, MARGIN, room, FAINT, last.hint)
        return 0.0
    ruler = _draw_legend(canvas, windows, width, f"0 s: stamp {first_ns / 1e9:.15g} s")
    y = ruler + canvas.size("0", room)[1] + GAP
    blocks: list[_Block] = []
    for window in windows:
        block = _Block.of(canvas, window, first_ns, y, room)
        if blocks and block.bottom > height:
            break
        blocks.append(block)
        y = block.bottom
    last_ms = _last_ms([block.window for block in blocks])
    scale = _Scale(LABELS, width - MARGIN, last_ms)
    for ms, told in (-_MOST_MS, f"-{_MOST_MS:.0f} ms"), (0, "close"), (last_ms / 2, f"{last_ms / 2:.0f} ms"):
        canvas.text(scale.x(ms), ruler, room, FAINT, told)
    for block in blocks:
        canvas.rect(0, block.top, width, 1, "#dddddd")
        for y, colour, text in block.texts:
            canvas.text(MARGIN, y, room, colour, text)
        _draw_bars(canvas, block.window, scale, block.bars)
    return blocks[0].bottom


@dataclass(frozen=True)
class _Block:
    """The place of one window; every text has the height that it needs."""

    window: Captioned
    top: float
    texts: list[tuple[float, str, str]]
    bars: float

    @property
    def bottom(self) -> float:
        return self.bars + _BARS

    @classmethod
    def of(cls, canvas: Canvas, window: Captioned, first_ns: int, top: float, room: float) -> _Block:
        # A figure is never torn from its unit by the end of a line.
        told = (seconds(window.start_ns, window.end_ns, first_ns), *window.figures)
        head = f"{_NO_BREAK}· ".join(each.replace(" ", _NO_BREAK) for each in told)
        texts, y = [], top + GAP
        for colour, text in ((FAINT, head), (INK if window.is_good else WRONG, window.text)):
            texts.append((y, colour, text))
            y += canvas.size(text, room)[1] + GAP
        return cls(window, top, texts, y)


def _last_ms(windows: Sequence[Captioned]) -> float:
    """The end of the scale: behind the newest window; an older one that took much longer runs off it."""
    ends = [max(span.end_ns / 1e6 for span in window.spans) for window in windows if window.spans]
    if not ends:
        return _LEAST_MS
    newest_ms = ends[0] if windows[0].spans else 0.0
    return _ROOM * max(_LEAST_MS, newest_ms, min(max(ends), 3 * median(ends)))


class _Scale:
    """Milliseconds from the close to pixels, before and after it on scales of their own."""

    def __init__(self, left: float, right: float, last_ms: float) -> None:
        self._left, self._right, self._close = left, right, left + (right - left) * _OPEN
        self._before = (self._close - left) / _MOST_MS
        self._after = (right - self._close) / last_ms

    def x(self, ms: float) -> float:
        return min(self._right, max(self._left, self._close + ms * (self._before if ms < 0 else self._after)))


def _draw_bars(canvas: Canvas, window: Captioned, scale: _Scale, top: float) -> None:
    y = top
    for name in ("target", "draft"):
        canvas.text(MARGIN, y - 2, LABELS - MARGIN, FAINT, name)
        for span in window.spans:
            if span.stage in ROWS[name]:
                _draw_bar(canvas, scale, y, span.start_ns, span.end_ns, COLOURS[span.stage])
        y += ROW
    canvas.text(MARGIN, y - 2, LABELS - MARGIN, FAINT, "hidden")
    for start_ns, end_ns in window.hidden:
        _draw_bar(canvas, scale, y, start_ns, end_ns, HIDDEN)
    canvas.rect(scale.x(0), top, 1, 3 * ROW, INK)


def _draw_bar(canvas: Canvas, scale: _Scale, y: float, start_ns: int, end_ns: int, colour: str) -> None:
    left, right = scale.x(start_ns / 1e6), scale.x(end_ns / 1e6)
    canvas.rect(left, y, max(1.0, right - left), ROW - 3, colour)


def _draw_legend(canvas: Canvas, windows: Sequence[Captioned], width: float, last: str) -> float:
    """Draw it in as many lines as it needs, with `last` at its end; returns where the last one ends."""
    seen = {span.stage for window in windows for span in window.spans}
    shown = {stage: COLOURS[stage] for row in ("target", "draft") for stage in ROWS[row] if stage in seen}
    x, y, line = MARGIN, GAP, 0.0
    for stage, colour in {**shown, "hidden": HIDDEN, last: _PAPER}.items():
        text = stage.replace("_", _NO_BREAK).replace(" ", _NO_BREAK)
        needed, line = canvas.size(text, width)
        if x > MARGIN and x + 14 + needed > width - MARGIN:
            x, y = MARGIN, y + line
        canvas.rect(x, y + 3, 10, 10, colour)
        canvas.text(x + 14, y, needed, FAINT, text)
        x += 14 + needed + 10
    return y + line
