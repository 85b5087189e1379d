"""What is read of open windows is bounded, whatever comes for them."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np

from crossspec_ros.captioning.open_windows import OpenWindows
from crossspec_ros.windows.assembler import MAX_IMAGES
from crossspec_ros.windows.window import Window


def test_a_window_that_gets_frames_without_end_begins_anew() -> None:
    closed: list[int] = []
    session = SimpleNamespace(
        append=lambda *_: Future(), close=lambda: closed.append(1), stop_rehearsal=lambda: None
    )
    engine = SimpleNamespace(open=lambda *_: session)
    windows = OpenWindows(engine)
    for i in range(2 * MAX_IMAGES + 1):
        opened = windows.add_frame(7, np.empty((1, 1, 3), np.uint8), i)
        assert len(opened.frames) == i % MAX_IMAGES + 1
    assert len(closed) == 2


def window(index: int, frames: int, event_images: int) -> Window:
    images = [np.zeros((count, 2, 2, 3), np.uint8) for count in (event_images, frames)]
    return Window(index, index * 10**9, (index + 1) * 10**9, *images)


def test_a_window_is_expected_to_have_as_many_event_images_as_the_one_before() -> None:
    windows, image = OpenWindows(None, 3), np.zeros((2, 2, 3), np.uint8)

    def draft_begins(index: int) -> int:
        opened = windows.get(index)
        while not windows.can_draft(opened):
            opened.event_images.append(image)
        return len(opened.event_images)

    assert draft_begins(0) == 2
    windows.close(window(0, frames=3, event_images=5))
    assert draft_begins(1) == 4
    # One without events was like those before it.
    windows.close(window(1, frames=0, event_images=0))
    assert draft_begins(2) == 4
