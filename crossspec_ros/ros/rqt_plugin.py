"""The rqt plugin `crossspec`: watches one captioner's reports, chosen from those that there are."""

from __future__ import annotations

from typing import Any

from crossspec_msgs.msg import WindowReport
from python_qt_binding.QtCore import QTimer
from python_qt_binding.QtWidgets import QComboBox, QLabel, QVBoxLayout, QWidget
from rqt_gui_py.plugin import Plugin

from crossspec_ros.ros.boundary import Boundary
from crossspec_ros.ros.rqt.discovery import REPORT, await_topics, report_topics, watched_topic
from crossspec_ros.ros.rqt.view import TimelineView
from crossspec_ros.ros.rqt.windows import LastWindows

DEFAULT = "/captioner/report"
DISCOVERY_MS = 2000
NOBODY = (
    f"nobody publishes {REPORT}: look whether the captioner is active, whether ROS_DOMAIN_ID is the same "
    f"there, and by ros2 topic list -t where its reports are"
)
AWAITED_S = 3.0
"""Seconds that a perspective waits for its captioner at most; rqt's window stands still meanwhile."""


class Crossspec(Plugin):
    """rqt spins the node in a thread of its own, so that a report costs the window nothing."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.setObjectName("Crossspec")
        self._node = context.node
        # The thread that spins it is that of all plugins.
        self._boundary = Boundary(self._node)
        self._windows = LastWindows()
        self._subscription: Any = None
        self._view = TimelineView(self._windows)
        self._topics = QComboBox()
        self._topics.currentTextChanged.connect(self._watch)
        self._remembered = ""
        self._note = QLabel()
        self._note.setWordWrap(True)
        self._note.hide()
        self._widget = QWidget()
        self._widget.setObjectName("Crossspec")
        self._widget.setWindowTitle("Captions")
        layout = QVBoxLayout(self._widget)
        layout.addWidget(self._topics)
        layout.addWidget(self._note)
        layout.addWidget(self._view, 1)
        context.add_widget(self._widget)
        self._offer(DEFAULT)
        self._discovery = QTimer(self._widget)
        self._discovery.timeout.connect(self._boundary.guarded(self._discover, "the search for topics"))
        self._discovery.start(DISCOVERY_MS)

    def shutdown_plugin(self) -> None:
        """Called by rqt before it drops the plugin."""
        self._discovery.stop()
        self._view.stop()
        self._unwatch()

    def save_settings(self, plugin_settings: Any, instance_settings: Any) -> None:
        """Called by rqt: the perspective remembers the topic."""
        instance_settings.set_value("topic", self._topics.currentText())

    def restore_settings(self, plugin_settings: Any, instance_settings: Any) -> None:
        """Called by rqt before it restores the plots, which drop topics that ROS does not know yet."""
        if topic := instance_settings.value("topic"):
            self._remembered = topic
            self._offer(topic)
            self._choose(await_topics(self._node, topic, AWAITED_S))

    def _discover(self) -> None:
        # rqt lives on for a while after a signal has ended ROS.
        if not self._node.context.ok():
            return
        for topic in report_topics(self._node):
            self._offer(topic)
        if not self._windows.newest():
            topic = self._topics.currentText()
            found = watched_topic(self._node, topic)
            self._windows.clear(f"no report has come yet on {topic}" if found == topic else NOBODY)
            if found not in (topic, ""):
                self._choose(found)

    def _choose(self, topic: str) -> None:
        self._offer(topic)
        self._topics.setCurrentText(topic)
        if self._remembered not in ("", topic):
            asked, found = (name.rpartition("/")[0] for name in (self._remembered, topic))
            self._note.setText(
                f"the perspective names {asked}, so its other panes stay empty: make one for {found} by "
                f"sed 's#{asked}/#{found}/#g' FILE > NEW"
            )
            self._note.show()

    def _offer(self, topic: str) -> None:
        if self._topics.findText(topic) < 0:
            self._topics.addItem(topic)

    def _watch(self, topic: str) -> None:
        self._unwatch()
        self._windows.clear(f"no report has come yet on {topic}")
        add = self._boundary.guarded(self._windows.add, f"a message on {topic}")
        self._subscription = self._node.create_subscription(WindowReport, topic, add, 10)

    def _unwatch(self) -> None:
        if self._subscription is not None:
            self._node.destroy_subscription(self._subscription)
            self._subscription = None
