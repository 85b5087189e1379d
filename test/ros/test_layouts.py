"""The Foxglove layout names only topics that the nodes publish."""

from __future__ import annotations

import json
from importlib import import_module

import pytest
from test_reference_topics import documented_topics

from crossspec_ros.paths import share_dir
from crossspec_ros.ros.diagnostics import HARDWARE_ID

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
    assert config["selectedName"] == "captioner: latency"
