"""The rqt plugin's calls of ROS and rqt, with stand-ins for Qt and rqt, which tests cannot import."""

from __future__ import annotations

import sys
from importlib import import_module
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from crossspec_msgs.msg import WindowReport

from crossspec_ros.telemetry.trace import LATENCIES

PLUGIN = "crossspec_ros.ros.rqt_plugin"


class Plugin:
    def __init__(self, context):
        pass

    def setObjectName(self, name):
        pass


class Topics:
    """A combo box that shows the first item until another one is selected."""

    def __init__(self):
        self.items, self.text, self.watchers = [], "", []
        self.currentTextChanged = SimpleNamespace(connect=self.watchers.append)

    def addItem(self, text):
        self.items.append(text)
        if not self.text:
            self.setCurrentText(text)

    def findText(self, text):
        return self.items.index(text) if text in self.items else -1

    def setCurrentText(self, text):
        if text != self.text:
            self.text = text
            for watch in self.watchers:
                watch(text)

    def currentText(self):
        return self.text


class Node(MagicMock):
    """Lists the captioner's topic from the third look on, and raises after ROS has ended."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.ok, self.looks = True, 0
        self.context = SimpleNamespace(ok=lambda: self.ok)

    def get_topic_names_and_types(self):
        assert self.ok, "the context is invalid"
        return [("/robot/report", ["crossspec_msgs/msg/WindowReport"])] if self.looks > 2 else []

    def count_publishers(self, topic):
        assert self.ok, "the context is invalid"
        self.looks += 1
        return int(topic == "/robot/report" and self.looks > 2)


@pytest.fixture
def plugin(monkeypatch):
    widgets = MagicMock(QComboBox=Topics)
    for name, module in {
        "pyqtgraph": MagicMock(),
        "python_qt_binding": MagicMock(),
        "python_qt_binding.QtCore": MagicMock(),
        "python_qt_binding.QtGui": MagicMock(),
        "python_qt_binding.QtWidgets": widgets,
        "rqt_gui_py": MagicMock(),
        "rqt_gui_py.plugin": SimpleNamespace(Plugin=Plugin),
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    module = import_module(PLUGIN)
    yield module.Crossspec(MagicMock(node=Node()))
    del sys.modules[PLUGIN]


def test_topic_of_the_perspective_is_watched(plugin):
    plugin.restore_settings(None, SimpleNamespace(value=lambda key: "/robot/report"))
    assert plugin._topics.items == ["/captioner/report", "/robot/report"]
    assert plugin._topics.text == "/robot/report" and "/robot/report" in plugin._windows.hint


def test_published_topic_is_watched_until_a_report(plugin):
    plugin._refresh()
    assert plugin._topics.text == "/captioner/report"
    plugin._node.looks = 3
    plugin._refresh()
    assert plugin._topics.text == "/robot/report"
    plugin._topics.setCurrentText("/captioner/report")
    plugin._windows.add(WindowReport())
    plugin._refresh()
    assert plugin._topics.text == "/captioner/report"
    plugin._node.ok = False
    plugin._refresh()


def test_each_figure_has_a_curve(plugin):
    assert set(plugin._curves) == {*LATENCIES, "acceptance_length"}
