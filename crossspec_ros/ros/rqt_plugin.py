"""The rqt plugin `crossspec`: shows the reports of one captioner."""

from __future__ import annotations

import time
from math import ceil
from typing import Any

from crossspec_msgs.msg import WindowReport
from python_qt_binding.QtCore import QTimer
from python_qt_binding.QtGui import QColor, QPainter
from python_qt_binding.QtWidgets import QComboBox, QVBoxLayout, QWidget
from rqt_gui_py.plugin import Plugin

from crossspec_ros.ros.rqt_timelines import LastWindows, draw

REPORT = "crossspec_msgs/msg/WindowReport"
DEFAULT = "/captioner/report"
DISCOVERY_MS, DISCOVERY_S, LOOK_S = 2000, 3.0, 0.3
"""Period of the search for topics; a restored perspective waits so long, and looks so often."""
PERIOD_MS, FONT_PIXELS, MAX_HEIGHT = 200, 12, 320
_WORD_WRAP, _MAX_TEXT_HEIGHT = 0x1000, 100_000
"""Qt.TextWordWrap, which the bindings spell and type differently; pixels."""


class Crossspec(Plugin):
    """Subscribes to one report topic; rqt spins the node in a thread of its own."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.setObjectName("Crossspec")
        self._node = context.node
        self._windows = LastWindows()
        self._subscription: Any = None
        self._view = TimelineView(self._windows)
        self._topics = QComboBox()
        self._topics.currentTextChanged.connect(self._watch)
        self._widget = QWidget()
        self._widget.setWindowTitle("Captions")
        layout = QVBoxLayout(self._widget)
        layout.addWidget(self._topics)
        layout.addWidget(self._view, 1)
        context.add_widget(self._widget)
        self._offer(DEFAULT)
        self._discovery = QTimer(self._widget)
        self._discovery.timeout.connect(self._discover)
        self._discovery.start(DISCOVERY_MS)

    def shutdown_plugin(self) -> None:
        """Stop; called by rqt."""
        self._discovery.stop()
        self._view.timer.stop()
        self._unwatch()

    def save_settings(self, plugin_settings: Any, instance_settings: Any) -> None:
        """Store the topic in the perspective; called by rqt."""
        instance_settings.set_value("topic", self._topics.currentText())

    def restore_settings(self, plugin_settings: Any, instance_settings: Any) -> None:
        """Choose the topic of the perspective, once ROS knows it or after `DISCOVERY_S`; called by rqt.

        rqt restores the plots next, which drop unknown topics.
        """
        if topic := instance_settings.value("topic"):
            ends_s = time.monotonic() + DISCOVERY_S
            while not self._node.count_publishers(topic) and time.monotonic() < ends_s:
                time.sleep(LOOK_S)
            self._offer(topic)
            self._topics.setCurrentText(topic)

    def _discover(self) -> None:
        """Offer all report topics; while no report has come, watch one that is published."""
        # rqt goes on for a while after a signal has ended ROS.
        if not self._node.context.ok():
            return
        reports = [topic for topic, types in self._node.get_topic_names_and_types() if REPORT in types]
        for topic in reports:
            self._offer(topic)
        published = [topic for topic in reports if self._node.count_publishers(topic)]
        if published and not self._windows.newest() and self._topics.currentText() not in published:
            self._topics.setCurrentText(published[0])

    def _offer(self, topic: str) -> None:
        if self._topics.findText(topic) < 0:
            self._topics.addItem(topic)

    def _watch(self, topic: str) -> None:
        self._unwatch()
        self._windows.clear(f"no report has come yet on {topic}: check that its captioner is active")
        self._subscription = self._node.create_subscription(WindowReport, topic, self._windows.add, 10)

    def _unwatch(self) -> None:
        if self._subscription is not None:
            self._node.destroy_subscription(self._subscription)
            self._subscription = None


class TimelineView(QWidget):
    """Paints `windows`, which another thread may fill, at most five times a second."""

    def __init__(self, windows: LastWindows) -> None:
        super().__init__()
        self._windows = windows
        self.setMinimumSize(480, 160)
        self.timer = QTimer(self)
        self.timer.timeout.connect(self.update)
        self.timer.start(PERIOD_MS)

    def paintEvent(self, event: object) -> None:
        """Paint; the name is Qt's."""
        painter = QPainter(self)
        painter.fillRect(0, 0, self.width(), self.height(), QColor("#ffffff"))
        font = painter.font()
        font.setPixelSize(FONT_PIXELS)
        painter.setFont(font)
        needed = draw(_QtCanvas(painter), self._windows, self.width(), self.height())
        painter.end()
        self.setMinimumHeight(max(self.minimumHeight(), min(ceil(needed), MAX_HEIGHT)))


class _QtCanvas:
    def __init__(self, painter: QPainter) -> None:
        self._painter = painter

    def rect(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        self._painter.fillRect(round(x), round(y), max(1, round(width)), round(height), QColor(colour))

    def text(self, x: float, y: float, width: float, colour: str, text: str) -> None:
        self._painter.setPen(QColor(colour))
        self._painter.drawText(round(x), round(y), ceil(width), _MAX_TEXT_HEIGHT, _WORD_WRAP, text)

    def size(self, text: str, width: float) -> tuple[float, float]:
        needed = self._painter.boundingRect(0, 0, ceil(width), _MAX_TEXT_HEIGHT, _WORD_WRAP, text)
        return needed.width(), needed.height()
