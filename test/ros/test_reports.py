"""Messages about a window: its report, its caption and its picture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crossspec_ros.captioning.caption import RESTS_ON, Caption, without_images
from crossspec_ros.ros.annotated_image import annotated
from crossspec_ros.ros.messages import MESSAGES
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.quality import flags
from crossspec_ros.windows.window import Window

FRAME = np.full((1, 30, 60, 3), (10, 200, 30), np.uint8)
EVENTS = np.full((2, 40, 40, 3), 255, np.uint8)
NONE = FRAME[:0]


@pytest.mark.parametrize("source", RESTS_ON)
def test_unverified_caption_is_a_warning(blind: Window, source: str) -> None:
    trace = Trace()
    trace.mark("closed")
    message = MESSAGES.captioned_report(blind, Caption("a car", (1, 2), source, 1), trace, ())
    assert message.caption.verified == (source == "target")
    assert message.level == (message.OK if source == "target" else message.WARN)


@pytest.mark.parametrize(
    ("source", "faults", "absent", "frames"),
    [("target", (), "empty", 8), ("none", ("events_missing", "rgb_dark"), "nothing to be seen", 0)],
)
def test_report_of_an_empty_caption_is_a_warning(
    windows: list[Window], source: str, faults: tuple[str, ...], absent: str, frames: int
) -> None:
    """Only a window without usable images is reported as nothing to be seen."""
    trace = Trace()
    trace.mark("closed")
    message = MESSAGES.captioned_report(windows[0], Caption("", (2,), source, 1), trace, faults)
    assert message.level == message.WARN and absent in message.message
    assert (message.frames, message.event_images) == (frames, 5)


def test_missing_images_are_a_warning(windows: list[Window]) -> None:
    lacking = replace(windows[0], missing=9, frames=windows[0].frames[:4])
    trace = Trace()
    trace.mark("closed")
    message = MESSAGES.captioned_report(lacking, Caption("a car", (1, 2), "target", 1), trace, flags(lacking))
    assert message.level == message.WARN and "images_missing" in message.degraded
    assert (message.frames, message.missing_images) == (4, 9)
    # A skipped window has no pixels, but keeps its number of images.
    assert MESSAGES.report(without_images(lacking), "skipped", "").frames == 4


def test_report_clips_values_to_its_fields(blind: Window) -> None:
    message = MESSAGES.report(replace(blind, start_ns=-(2**31 + 1) * 10**9, missing=2**33), "inactive", "")
    assert (message.window_start.sec, message.missing_images) == (-(2**31), 2**32 - 1)


def test_picture_has_frame_and_events_over_the_text():
    picture = annotated(Window(0, 0, 1, EVENTS, FRAME), ["a car", "35 ms"])
    assert picture.dtype == np.uint8 and picture.shape[1] == 480 + 240 + 3 * 6
    np.testing.assert_array_equal(picture[100, 100], FRAME[0, 0, 0])
    np.testing.assert_array_equal(picture[100, 600], (255, 255, 255))
    assert (picture[250:, :, 0] > 200).any()


def test_picture_wraps_text_and_greys_missing_images():
    short, long = (annotated(Window(0, 0, 1, NONE, NONE), [text]) for text in ("a", "a car " * 60))
    assert short.shape[1] == long.shape[1] and long.shape[0] > short.shape[0] + 60
    assert len(np.unique(short[20:200, 20:200])) == 1


@pytest.mark.parametrize("size", [(1, 200), (200, 1)])
def test_picture_of_oblong_images_is_bounded(size):
    oblong = np.zeros((1, *size, 3), np.uint8)
    assert annotated(Window(0, 0, 1, oblong, oblong), ["a car " * 60]).nbytes < 20 << 20
