"""A caption's message says whether the target alone would have written it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crossspec_ros.captioning.caption import RESTS_ON, Caption
from crossspec_ros.captioning.outcome import without_images
from crossspec_ros.ros.reports import captioned_report, report
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.quality import flags
from crossspec_ros.windows.window import Window


@pytest.mark.parametrize("source", RESTS_ON)
def test_a_caption_that_no_target_verified_is_a_warning(blind: Window, source: str) -> None:
    trace = Trace()
    trace.mark("closed")
    message = captioned_report(blind, Caption("a car", (1, 2), source, 1), trace, (), 0)
    assert message.caption.verified == (source == "target")
    assert message.level == (message.OK if source == "target" else message.WARN)


@pytest.mark.parametrize(
    ("source", "faults", "absent", "frames"),
    [("target", (), "empty", 8), ("none", ("events_missing", "rgb_dark"), "nothing to be seen", 0)],
)
def test_report_of_an_empty_caption_is_a_warning(
    windows: list[Window], source: str, faults: tuple[str, ...], absent: str, frames: int
) -> None:
    """Only a window without usable images has nothing to be seen."""
    trace = Trace()
    trace.mark("closed")
    message = captioned_report(windows[0], Caption("", (2,), source, 1), trace, faults, 0)
    assert message.level == message.WARN and absent in message.message
    assert (message.frames, message.event_images) == (frames, 5)


def test_report_of_a_window_that_lacks_images_is_a_warning(windows: list[Window]) -> None:
    lacking = replace(windows[0], missing=9, frames=windows[0].frames[:4])
    trace = Trace()
    trace.mark("closed")
    message = captioned_report(lacking, Caption("a car", (1, 2), "target", 1), trace, flags(lacking), 0)
    assert message.level == message.WARN and "images_missing" in message.degraded
    assert (message.frames, message.missing_images) == (4, 9)
    # A window that is skipped has no pixels, but still a number of images.
    assert report(without_images(lacking), "skipped", "").frames == 4


def test_what_a_report_cannot_say_is_told_as_the_most_that_it_can(blind: Window) -> None:
    message = report(replace(blind, start_ns=-(2**31 + 1) * 10**9, missing=2**33), "inactive", "")
    assert (message.window_start.sec, message.missing_images) == (-(2**31), 2**32 - 1)
