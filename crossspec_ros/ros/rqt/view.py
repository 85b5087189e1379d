"""The widget: paints the last windows five times a second at most, however fast the reports come."""

from __future__ import annotations

from math import ceil

from python_qt_binding.QtCore import QTimer
from python_qt_binding.QtGui import QColor, QPainter
from python_qt_binding.QtWidgets import QWidget

from crossspec_ros.ros.rqt.timelines import draw
from crossspec_ros.ros.rqt.windows import LastWindows

PERIOD_MS = 200
FONT_PIXELS = 12
MOST_HEIGHT = 320
"""Pixels that the newest window may claim; whoever publishes a report of pages does not fill the screen."""
_WORD_WRAP = 0x1000
"""Qt.TextWordWrap, which the bindings spell and type differently."""
_ENDLESS = 100_000
"""Pixels: as high as a text may become."""


class TimelineView(QWidget):
    """Shows `windows`, which another thread may fill."""

    def __init__(self, windows: LastWindows) -> None:
        super().__init__()
        self._windows = windows
        self._shown = -1
        self.setMinimumSize(480, 160)
        self._timer = QTimer(self)
        self._timer.timeout.connect(self._refresh)
        self._timer.start(PERIOD_MS)

    def stop(self) -> None:
        """Paint no more."""
        self._timer.stop()

    def paintEvent(self, event: object) -> None:
        """Qt's name for painting."""
        painter = QPainter(self)
        painter.fillRect(0, 0, self.width(), self.height(), QColor("#ffffff"))
        font = painter.font()
        font.setPixelSize(FONT_PIXELS)
        painter.setFont(font)
        needed = draw(_QtCanvas(painter), self._windows, self.width(), self.height())
        painter.end()
        # Whatever else is in the window of rqt, the newest timeline is seen whole.
        if self.minimumHeight() < needed:
            self.setMinimumHeight(min(ceil(needed), MOST_HEIGHT))

    def _refresh(self) -> None:
        if self._shown != self._windows.changes:
            self._shown = self._windows.changes
            self.update()


class _QtCanvas:
    def __init__(self, painter: QPainter) -> None:
        self._painter = painter

    def rect(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        self._painter.fillRect(round(x), round(y), max(1, round(width)), round(height), QColor(colour))

    def text(self, x: float, y: float, width: float, colour: str, text: str) -> None:
        self._painter.setPen(QColor(colour))
        self._painter.drawText(round(x), round(y), ceil(width), _ENDLESS, _WORD_WRAP, text)

    def size(self, text: str, width: float) -> tuple[float, float]:
        needed = self._painter.boundingRect(0, 0, ceil(width), _ENDLESS, _WORD_WRAP, text)
        return needed.width(), needed.height()
