"""The node and the writer of bags make the same messages, and ROS reads those of a bag."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rclpy.serialization import deserialize_message

from crossspec_ros.captioning.caption import Caption, Holding
from crossspec_ros.captioning.standing import Answered, Standing
from crossspec_ros.captioning.window_messages import WindowMessages
from crossspec_ros.events.cdr import new_message, serialized, typestore
from crossspec_ros.ros.messages import MESSAGES
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

TRACE = Trace()
TRACE.mark("closed", 5_000_000)
TRACE.add("verify[0]", 4_000_000, 6_000_000)
CAPTION = Caption("a car", (1, 2), "target", 1, {"memory": 3}, {"memory": 2})
HOLDING = Holding(CAPTION, Window(3, 0, 10**9, *np.zeros((2, 0, 0, 0, 3), np.uint8)))
STANDING = Standing("Is it dark?", ("yes", "no"))


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("report", ("skipped", "late")),
        ("report", ("unchanged", "", ("rgb_dark",), HOLDING, "camera")),
        ("captioned_report", (CAPTION, TRACE, ("rgb_dark",), "camera")),
    ],
)
def test_reports_of_node_and_bag_are_equal(windows, name, more):
    window = replace(windows[0], events=7, missing=3)
    ours, theirs = (
        getattr(messages, name)(window, *more) for messages in (WindowMessages(new_message), MESSAGES)
    )
    assert deserialize_message(serialized(ours), type(theirs)) == theirs


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("answer", (STANDING, Answered(CAPTION, (0.25, 0.75)), 5 * 10**9, "camera")),
        ("caption", (CAPTION, -(2**62), "camera")),
    ],
)
def test_answers_and_captions_of_node_and_bag_are_equal(name, values):
    ours, theirs = (getattr(messages, name)(*values) for messages in (WindowMessages(new_message), MESSAGES))
    assert deserialize_message(serialized(ours), type(theirs)) == theirs


@pytest.mark.parametrize("name", ["Answer", "Caption", "WindowReport"])
def test_types_of_a_bag_have_the_hash_of_ros(name):
    prefixes = [sys.prefix, *os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)]
    files = [Path(prefix, "share", "crossspec_msgs", "msg", f"{name}.json") for prefix in prefixes]
    hashes = json.loads(next(filter(Path.exists, files)).read_text())["type_hashes"]
    kind = f"crossspec_msgs/msg/{name}"
    assert {"type_name": kind, "hash_string": typestore().hash_rihs01(kind)} in hashes
