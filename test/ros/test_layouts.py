"""The rqt perspective and the Foxglove layout name only topics that the nodes publish."""

from __future__ import annotations

import ast
import json
from copy import deepcopy
from importlib import import_module

import pytest
from test_reference_topics import documented_topics

from crossspec_ros.captioning.health import CaptionHealth
from crossspec_ros.paths import share_dir
from crossspec_ros.ros.diagnostics import HARDWARE_ID
from crossspec_ros.settings import CaptionerSettings

PERSPECTIVES = sorted((share_dir() / "config" / "rqt").glob("*.perspective"))
FOXGLOVE = share_dir() / "config" / "foxglove" / "crossspec.json"
PANELS = {"Plot", "RawMessages", "Image", "DiagnosticSummary", "DiagnosticStatusPanel"}


@pytest.fixture(scope="module")
def published():
    """The types of all topics of synchronizer and captioner, by the page that is checked against them."""
    return {
        topic: kind.replace("/", "/msg/")
        for node in ("synchronizer", "captioner")
        for topic, direction, kind, _ in documented_topics(node)
        if direction == "out"
    }


@pytest.fixture(scope="module", params=PERSPECTIVES, ids=lambda path: path.stem)
def perspective(request):
    """What the file of a perspective says."""
    return json.loads(request.param.read_text())


@pytest.fixture(scope="module")
def plugins(perspective):
    """The perspective's plugins by `package/name#number` with their settings."""
    manager = deepcopy(perspective)["groups"]["pluginmanager"]
    running = ast.literal_eval(manager["keys"]["running-plugins"]["repr"])
    settings = {}
    for plugin, numbers in running.items():
        for number in numbers:
            group = manager["groups"].pop(f"plugin__{plugin.replace('/', '__')}__{number}")
            keys = group["groups"]["plugin"]["keys"]
            assert all(value["type"] == "repr" for value in keys.values())
            settings[f"{plugin}#{number}"] = {
                key: ast.literal_eval(value["repr"]) for key, value in keys.items()
            }
    assert manager["groups"] == {}
    return settings


def test_the_perspective_plots_every_latency_and_acceptance(plugins, published):
    plotted = []
    for plugin, settings in plugins.items():
        if plugin.startswith("rqt_plot/Plot#"):
            topics = settings["topics"]
            plotted += [topics] if isinstance(topics, str) else topics
    topics = [field.removesuffix("/data") for field in plotted]
    assert all(
        field.endswith("/data") and "Float64" in published[topic]
        for field, topic in zip(plotted, topics, strict=True)
    )
    assert set(topics) == {topic for topic, kind in published.items() if "Float64" in kind}
    # rqt_plot cannot tell a topic from one below it.
    assert not any(other.startswith(f"{topic}/") for topic in topics for other in published)


def test_the_perspective_has_our_plugin_and_no_monitor(plugins, published):
    assert published[plugins["crossspec_ros/Crossspec#1"]["topic"]] == "crossspec_msgs/msg/WindowReport"
    for image in (settings for plugin, settings in plugins.items() if plugin.startswith("rqt_image_view/")):
        assert published[image["topic"]] == "sensor_msgs/msg/Image"
    # What every caption of so many tokens has at most, in one pass, is not clipped.
    assert plugins["rqt_plot/Plot#3"]["y_limits"][1] > CaptionerSettings().max_new_tokens
    # What is restored after it, in this order, finds the topics that it has waited for.
    assert next(iter(plugins)) == "crossspec_ros/Crossspec#1"
    # It must run in a process of its own.
    assert not any("monitor" in plugin for plugin in plugins)


def message_class(kind):
    package, _, name = kind.split("/")
    return getattr(import_module(f"{package}.msg"), name)


def panels(layout):
    if isinstance(layout, str):
        return [layout]
    assert layout["direction"] in ("row", "column") and 0 < layout["splitPercentage"] < 100
    return panels(layout["first"]) + panels(layout["second"])


def test_the_foxglove_layout_shows_each_panel_once_and_only_topics_that_there_are(published):
    data = json.loads(FOXGLOVE.read_text())
    shown = panels(data["layout"])
    assert sorted(shown) == sorted(data["configById"])
    assert {panel.split("!")[0] for panel in shown} == PANELS
    kinds = {"Plot": "Float64", "Image": "sensor_msgs/msg/Image", "Diagnostic": "DiagnosticArray"}
    for panel, config in data["configById"].items():
        paths = [path["value"] for path in config.get("paths", [])]
        paths += [config[key] for key in ("topicPath", "topicToRender") if key in config]
        paths += [config["imageMode"]["imageTopic"]] if "imageMode" in config else []
        assert paths
        for path in paths:
            topic, *fields = path.split(".")
            kind = published[topic]
            assert all(kind.endswith(end) for start, end in kinds.items() if panel.startswith(start)), path
            assert set(fields) <= set(message_class(kind).get_fields_and_field_types()), path


def test_the_foxglove_status_panel_watches_a_part_that_there_is():
    config = json.loads(FOXGLOVE.read_text())["configById"]["DiagnosticStatusPanel!latency"]
    assert config["selectedHardwareId"] == HARDWARE_ID
    node, part = config["selectedName"].split(": ")
    assert node == "captioner" and part in CaptionHealth().readings(0.0, 0)
