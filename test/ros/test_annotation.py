from __future__ import annotations

import numpy as np
import pytest

from crossspec_ros.ros.annotation import annotated
from crossspec_ros.windows.window import Window

FRAME = np.full((1, 30, 60, 3), (10, 200, 30), np.uint8)
EVENTS = np.full((2, 40, 40, 3), 255, np.uint8)
NONE = FRAME[:0]


def test_frame_and_events_stand_side_by_side_over_the_text():
    picture = annotated(Window(0, 0, 1, EVENTS, FRAME), ["a car", "35 ms"])
    assert picture.dtype == np.uint8 and picture.shape[1] == 480 + 240 + 3 * 6
    np.testing.assert_array_equal(picture[100, 100], FRAME[0, 0, 0])
    np.testing.assert_array_equal(picture[100, 600], (255, 255, 255))
    assert (picture[250:, :, 0] > 200).any()


def test_a_long_caption_is_wrapped_and_a_missing_sensor_is_grey():
    short, long = (annotated(Window(0, 0, 1, NONE, NONE), [text]) for text in ("a", "a car " * 60))
    assert short.shape[1] == long.shape[1] and long.shape[0] > short.shape[0] + 60
    assert len(np.unique(short[20:200, 20:200])) == 1


@pytest.mark.parametrize("size", [(1, 200), (200, 1)])
def test_oblong_images_become_no_large_picture(size):
    oblong = np.zeros((1, *size, 3), np.uint8)
    assert annotated(Window(0, 0, 1, oblong, oblong), ["a car " * 60]).nbytes < 20 << 20
