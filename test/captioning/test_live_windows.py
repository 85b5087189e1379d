"""The number of open windows, and of their images, is bounded."""

from __future__ import annotations

import numpy as np

from crossspec_ros.captioning.live_windows import OPEN_WINDOWS, LiveWindow, LiveWindows
from crossspec_ros.windows.assembler import MAX_IMAGES
from crossspec_ros.windows.window import Window

IMAGE = np.zeros((2, 2, 3), np.uint8)


def window(index, event_images):
    images = [np.zeros((count, 2, 2, 3), np.uint8) for count in (event_images, 3)]
    return Window(index, index * 10**9, (index + 1) * 10**9, *images)


def test_window_begins_anew_with_too_many_frames():
    dropped: list[LiveWindow] = []
    windows = LiveWindows(5, lambda live: live.index, dropped.append)
    for i in range(2 * MAX_IMAGES + 1):
        assert len(windows.add_frame(7, IMAGE, i).frames) == i % MAX_IMAGES + 1
    again = windows.add_frame(7, IMAGE, 0)
    assert again.stamps_ns == [0] and len(dropped) == 3 and all(one.stop_draft.is_set() for one in dropped)


def test_number_of_open_windows_is_bounded():
    dropped: list[LiveWindow] = []
    windows = LiveWindows(5, lambda live: live.index, dropped.append)
    opened = [windows.get(index) for index in range(OPEN_WINDOWS + 1)]
    assert dropped == opened[:1] and [windows.find(1), windows.find(2)] == opened[1:]
    assert windows.close(window(2, 5)) is opened[2] and dropped == opened[:2]
    assert windows.find(2) is None and windows.close(window(2, 5)) is not opened[2]
    # The clock jumped back.
    later = windows.get(9)
    windows.close(window(3, 5))
    assert dropped == [*opened[:2], later]


def test_window_expects_the_previous_number_of_images():
    windows = LiveWindows(3, lambda live: live.index, lambda live: None)

    def draft_begins(index):
        live = windows.get(index)
        while not windows.can_draft(live):
            live.event_images.append(IMAGE)
        return len(live.event_images)

    assert draft_begins(0) == 2
    windows.close(window(0, event_images=5))
    assert draft_begins(1) == 4
    # A window without events does not change the expectation.
    windows.close(window(1, event_images=0))
    assert draft_begins(2) == 4
