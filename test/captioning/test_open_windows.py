"""What is read of open windows is bounded, whatever comes for them."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np

from crossspec_ros.captioning.open_windows import OpenWindows
from crossspec_ros.windows.assembler import MOST_IMAGES, MOST_WINDOW_BYTES


def test_a_window_that_gets_frames_without_end_begins_anew() -> None:
    closed: list[int] = []
    session = SimpleNamespace(append=lambda *_: Future(), close=lambda: closed.append(1))
    engine = SimpleNamespace(open=lambda *_: session)
    windows = OpenWindows(engine)
    # Pixels that nobody writes take no memory.
    for frames, frame in (
        (MOST_IMAGES, np.empty((1, 1, 3), np.uint8)),
        (2, np.empty(MOST_WINDOW_BYTES // 2, np.uint8)),
    ):
        for i in range(2 * frames + 1):
            opened = windows.add_frame(7, frame, i)
            assert len(opened.frames) == i % frames + 1
    assert len(closed) == 2 + 1 + 2
