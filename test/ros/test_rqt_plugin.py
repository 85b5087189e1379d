"""What the plugin asks of ROS and rqt, on stand-ins for Qt and rqt, which no test may rely on."""

from __future__ import annotations

import sys
from importlib import import_module
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from crossspec_msgs.msg import WindowReport

PLUGIN = "crossspec_ros.ros.rqt_plugin"


class Plugin:
    def __init__(self, context):
        pass

    def setObjectName(self, name):
        pass


class Topics:
    """A combo box, which shows the first item until another one is chosen."""

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
    """Knows the captioner's topic from the third look on, and is of no use once ROS has ended."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.ok, self.looks = True, 0
        self.context = SimpleNamespace(ok=lambda: self.ok)

    def get_topic_names_and_types(self):
        assert self.ok, "the context is invalid"
        self.looks += 1
        return [("/robot/report", ["crossspec_msgs/msg/WindowReport"])] if self.looks > 2 else []

    def count_publishers(self, topic):
        return int(topic == "/robot/report" and self.looks > 2)


@pytest.fixture
def plugin(monkeypatch):
    widgets = MagicMock(QComboBox=Topics)
    for name, module in {
        "python_qt_binding": MagicMock(),
        "python_qt_binding.QtCore": MagicMock(),
        "python_qt_binding.QtWidgets": widgets,
        "rqt_gui_py": MagicMock(),
        "rqt_gui_py.plugin": SimpleNamespace(Plugin=Plugin),
        "crossspec_ros.ros.rqt.view": MagicMock(),
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr("crossspec_ros.ros.rqt.discovery.LOOK_S", 0.001)
    yield import_module(PLUGIN).Crossspec(MagicMock(node=Node()))
    del sys.modules[PLUGIN]


@pytest.mark.parametrize("remembered", ["/robot/report", "/captioner/report"])
def test_a_perspective_is_restored_once_a_captioner_is_known_also_in_a_namespace(plugin, remembered):
    plugin.restore_settings(None, SimpleNamespace(value=lambda key: remembered))
    assert 4 <= plugin._node.looks < 10
    assert plugin._topics.items == ["/captioner/report", "/robot/report"]
    assert plugin._topics.text == "/robot/report"
    assert plugin._windows.hint == "no report has come yet on /robot/report"
    told = [call.args[0] for call in plugin._note.setText.call_args_list]
    is_other = remembered != "/robot/report"
    assert len(told) == is_other and all("sed 's#/captioner/#/robot/#g' FILE > NEW" in text for text in told)


def test_a_plugin_from_the_menu_waits_for_nothing(plugin):
    plugin.restore_settings(None, SimpleNamespace(value=lambda key: None))
    assert plugin._node.looks == 0 and plugin._topics.items == ["/captioner/report"]


def test_captioners_that_come_later_are_offered_until_ros_has_ended(plugin):
    plugin._discover()
    assert plugin._windows.hint.startswith("nobody publishes crossspec_msgs/msg/WindowReport: look whether")
    plugin._discover()
    assert plugin._topics.items == ["/captioner/report", "/robot/report"]
    plugin._node.ok = False
    looks = plugin._node.looks
    plugin._discover()
    assert plugin._node.looks == looks


def test_the_first_captioner_there_is_is_watched_but_none_is_left_that_has_reported(plugin):
    for _ in range(3):
        plugin._discover()
    assert plugin._topics.text == "/robot/report"
    plugin._topics.setCurrentText("/captioner/report")
    plugin._windows.add(WindowReport())
    plugin._discover()
    assert plugin._topics.text == "/captioner/report"
