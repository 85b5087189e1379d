"""The Foxglove layout names only topics that the nodes publish."""

from __future__ import annotations

import json

from test_reference_topics import documented_topics

from crossspec_ros.paths import share_dir
from crossspec_ros.ros.diagnostics import HARDWARE_ID
from crossspec_ros.ros.messages import message_class

FOXGLOVE = share_dir() / "config" / "foxglove" / "crossspec.json"
PANELS = {"Plot", "RawMessages", "Image", "DiagnosticSummary", "DiagnosticStatusPanel"}


def panels(layout):
    if isinstance(layout, str):
        return [layout]
    assert layout["direction"] in ("row", "column") and 0 < layout["splitPercentage"] < 100
    return panels(layout["first"]) + panels(layout["second"])


def test_foxglove_layout_shows_published_topics():
    data = json.loads(FOXGLOVE.read_text())
    shown, configs = panels(data["layout"]), data["configById"]
    assert sorted(shown) == sorted(configs) and {panel.split("!")[0] for panel in shown} == PANELS
    nodes = documented_topics("synchronizer") | documented_topics("captioner")
    published = {topic: kind for topic, direction, kind, _ in nodes if direction == "out"}
    kinds = {"Plot": "Float64", "Image": "sensor_msgs/Image", "Diagnostic": "DiagnosticArray"}
    for panel, config in configs.items():
        paths = [path["value"] for path in config.get("paths", [])]
        paths += [config[key] for key in ("topicPath", "topicToRender") if key in config]
        paths += [config["imageMode"]["imageTopic"]] if "imageMode" in config else []
        assert paths
        for path in paths:
            topic, *fields = path.split(".")
            kind = published[topic]
            assert all(kind.endswith(end) for start, end in kinds.items() if panel.startswith(start)), path
            assert set(fields) <= set(message_class(kind).get_fields_and_field_types()), path
    status = configs["DiagnosticStatusPanel!latency"]
    assert (status["selectedHardwareId"], status["selectedName"]) == (HARDWARE_ID, "captioner: latency")
