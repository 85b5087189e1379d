"""The rqt plugin `crossspec`: shows the reports of one captioner."""

from __future__ import annotations

from math import ceil
from typing import Any

from crossspec_msgs.msg import WindowReport
from python_qt_binding.QtCore import QTimer
from python_qt_binding.QtGui import QColor, QPainter
from python_qt_binding.QtWidgets import QComboBox, QGroupBox, QHBoxLayout, QLabel, QVBoxLayout, QWidget
from rqt_gui_py.plugin import Plugin

from crossspec_ros.ros.rqt_timelines import PLOTS, STAGES, LastWindows, draw, legend, series

try:  # after Qt, because pyqtgraph uses the loaded binding
    import pyqtgraph
except ImportError as error:
    pyqtgraph, _no_plots = None, f"There are no plots ({error}): install python3-pyqtgraph."

REPORT = "crossspec_msgs/msg/WindowReport"
DEFAULT = "/captioner/report"
PERIOD_MS, FONT_PIXELS = 500, 12
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#8c564b")
_WORD_WRAP, _MAX_TEXT_HEIGHT = 0x1000, 100_000
"""Qt.TextWordWrap, whose name and type depend on the binding, and a height in pixels."""


class Crossspec(Plugin):
    """Subscribes to one report topic. rqt spins the node in its own thread."""

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
        layout, row = QVBoxLayout(self._widget), QHBoxLayout()
        layout.addWidget(self._topics)
        layout.addWidget(_legend(STAGES))
        layout.addWidget(self._view, 3)
        layout.addLayout(row, 2)
        self._curves: dict[str, Any] = {}
        for title, names in PLOTS.items() if pyqtgraph else ():
            row.addWidget(self._make_plot(title, names))
        if not pyqtgraph:
            row.addWidget(QLabel(_no_plots))
        context.add_widget(self._widget)
        self._offer(DEFAULT)
        self._timer = QTimer(self._widget)
        self._timer.timeout.connect(self._refresh)
        self._timer.start(PERIOD_MS)

    def _make_plot(self, title: str, names: tuple[str, ...]) -> QWidget:
        """Return a plot with its title, unit and a legend above the curves."""
        box, plot = QGroupBox(title), pyqtgraph.PlotWidget(background="w")
        colours, layout = dict(zip(names, COLOURS, strict=False)), QVBoxLayout(box)
        layout.addWidget(_legend(colours))
        layout.addWidget(plot, 1)
        plot.setLabel("bottom", "seconds")
        for name, colour in colours.items():
            self._curves[name] = plot.plot(pen=pyqtgraph.mkPen(colour, width=2))
        return box

    def shutdown_plugin(self) -> None:
        """Stop. rqt calls this."""
        self._timer.stop()
        self._watch("")

    def save_settings(self, plugin_settings: Any, instance_settings: Any) -> None:
        """Store the topic in the perspective. rqt calls this."""
        instance_settings.set_value("topic", self._topics.currentText())

    def restore_settings(self, plugin_settings: Any, instance_settings: Any) -> None:
        """Select the topic of the perspective. rqt calls this."""
        if topic := instance_settings.value("topic"):
            self._offer(topic)
            self._topics.setCurrentText(topic)

    def _refresh(self) -> None:
        """List all report topics, select a published one while reports are missing, and draw."""
        # rqt runs for a while after a signal has ended ROS.
        if not self._node.context.ok():
            return
        reports = [topic for topic, types in self._node.get_topic_names_and_types() if REPORT in types]
        for topic in reports:
            self._offer(topic)
        published = [topic for topic in reports if self._node.count_publishers(topic)]
        if published and not self._windows.newest() and self._topics.currentText() not in published:
            self._topics.setCurrentText(published[0])
        self._view.update()
        for name, curve in self._curves.items():
            curve.setData(*series(self._windows, name))

    def _offer(self, topic: str) -> None:
        if self._topics.findText(topic) < 0:
            self._topics.addItem(topic)

    def _watch(self, topic: str) -> None:
        if self._subscription is not None:
            self._node.destroy_subscription(self._subscription)
            self._subscription = None
        self._windows.clear(f"{topic} has no report yet: check that its captioner is active")
        if topic:
            self._subscription = self._node.create_subscription(WindowReport, topic, self._windows.add, 10)


def _legend(colours: dict[str, str]) -> QLabel:
    label = QLabel(legend(colours))
    label.setWordWrap(True)
    return label


class TimelineView(QWidget):
    """Paints `windows`, to which another thread may add."""

    def __init__(self, windows: LastWindows) -> None:
        super().__init__()
        self._windows = windows
        self.setMinimumSize(480, 260)

    def paintEvent(self, event: object) -> None:
        """Paint. Qt calls this."""
        painter = QPainter(self)
        painter.fillRect(0, 0, self.width(), self.height(), QColor("#ffffff"))
        font = painter.font()
        font.setPixelSize(FONT_PIXELS)
        painter.setFont(font)
        draw(_QtCanvas(painter), self._windows, self.width(), self.height())
        painter.end()


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
