"""A caption's message says whether the target alone would have written it, or features stood in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crossspec_ros.captioning.caption import RESTS_ON, Caption
from crossspec_ros.ros.reports import captioned_report, report, report_values
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


@pytest.mark.parametrize("source", RESTS_ON)
def test_features_in_place_of_frames_make_a_report_lossy(blind: Window, source: str) -> None:
    trace = Trace()
    trace.mark("closed")
    message = captioned_report(blind, Caption("a car", (1, 2), source, 1), trace, (), 0)
    assert message.caption.lossy == (source == "handoff")
    assert message.caption.verified == (source == "target")
    assert message.level == (message.OK if source == "target" else message.WARN)
    assert report_values(message)["lossy"] == message.caption.lossy


def test_what_a_report_cannot_say_is_told_as_the_most_that_it_can(blind: Window) -> None:
    message = report(replace(blind, start_ns=-(2**31 + 1) * 10**9, missing=2**33), "inactive", "")
    assert (message.window_start.sec, message.missing_images) == (-(2**31), 2**32 - 1)
