"""What the plugin asks of ROS and rqt, on stand-ins for Qt and rqt, which no test may rely on."""

from __future__ import annotations

import sys
from importlib import import_module
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

PLUGIN = "crossspec_ros.ros.rqt_plugin"


class Plugin:
    def __init__(self, context):
        pass

    def setObjectName(self, name):
        pass


class Topics(MagicMock):
    """A combo box."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.items = []
        self.addItem = self.items.append
        self.findText = lambda text: self.items.index(text) if text in self.items else -1


class Node:
    """Knows the captioner's topic from the third look on, and is of no use once ROS has ended."""

    def __init__(self):
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


def test_a_perspective_is_restored_once_its_captioner_is_known(plugin):
    plugin.restore_settings(None, SimpleNamespace(value=lambda key: "/robot/report"))
    assert plugin._node.looks == 4
    assert plugin._topics.items == ["/captioner/report", "/robot/report"]
    plugin._topics.setCurrentText.assert_called_once_with("/robot/report")


def test_a_plugin_from_the_menu_waits_for_nothing(plugin):
    plugin.restore_settings(None, SimpleNamespace(value=lambda key: None))
    assert plugin._node.looks == 0 and plugin._topics.items == ["/captioner/report"]


def test_captioners_that_come_later_are_offered_until_ros_has_ended(plugin):
    for _ in range(3):
        plugin._discover()
    assert plugin._topics.items == ["/captioner/report", "/robot/report"]
    plugin._node.ok = False
    plugin._discover()
    assert plugin._node.looks == 3
