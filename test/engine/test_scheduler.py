"""Which requests are next: a table of what waits, and of what is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crossspec_ros.engine.request import Frame, Request
from crossspec_ros.engine.scheduler import schedule

ASKED, BEGUN, CAN_WAIT = (
    SimpleNamespace(can_wait=False, has_begun=False),
    SimpleNamespace(can_wait=False, has_begun=True),
    SimpleNamespace(can_wait=True, has_begun=False),
)


def request(
    window: int,
    robot: str = "",
    frames: int = 0,
    tasks: Sequence[Any] = (),
    is_read: bool = False,
    was_asked: bool = False,
    has_more: bool = False,
    rehearses: bool = False,
) -> Request:
    made = Request(window, robot, was_asked=was_asked, has_more=has_more)
    made.frames.extend(Frame(np.empty(0), i) for i in range(frames))
    made.tasks.extend(tasks)
    made.sequence = object() if is_read else None  # type: ignore[assignment]
    if rehearses:
        made.rehearsal = SimpleNamespace(has_begun=True, future=Future())  # type: ignore[assignment]
        made.sequence = SimpleNamespace(ends_rehearsal=lambda frames: frames > 2)  # type: ignore[assignment]
    return made


@pytest.mark.parametrize(
    ("requests", "asked", "ahead", "idle"),
    [
        pytest.param([], [], [], None, id="nothing"),
        pytest.param([request(0, frames=1)], [], [0], None, id="a frame"),
        pytest.param([request(0, tasks=[ASKED]), request(1, frames=3)], [0], [], None, id="an answer first"),
        pytest.param(
            [request(0, tasks=[ASKED]), request(1, tasks=[ASKED])],
            [1],
            [],
            None,
            id="the newest window first",
        ),
        pytest.param(
            [request(0, tasks=[BEGUN]), request(1, tasks=[ASKED])], [0], [], None, id="what has begun goes on"
        ),
        pytest.param(
            [request(0, "a", tasks=[ASKED]), request(1, "b", tasks=[BEGUN])],
            [0, 1],
            [],
            None,
            id="robots share passes",
        ),
        pytest.param(
            [request(0, frames=2, tasks=[BEGUN])], [0], [], None, id="a window's frames wait for its answer"
        ),
        pytest.param(
            [request(0, "a", tasks=[BEGUN]), request(1, "b", frames=2)],
            [0],
            [1],
            None,
            id="another robot's frames pile up",
        ),
        pytest.param(
            [request(0, "a", tasks=[BEGUN]), request(1, "b", frames=1)],
            [0],
            [],
            None,
            id="one frame of another robot waits",
        ),
        pytest.param(
            [request(0, "a", tasks=[ASKED]), request(1, "b", frames=9)],
            [0],
            [],
            None,
            id="before a first pass all frames wait",
        ),
        pytest.param(
            [request(0, is_read=True), request(1, frames=1)], [], [], None, id="the window before closes soon"
        ),
        pytest.param(
            [request(0, is_read=True), request(1, frames=2)], [], [1], None, id="it does not close soon"
        ),
        pytest.param(
            [request(0, is_read=True, was_asked=True), request(1, frames=1)], [], [1], None, id="it was asked"
        ),
        pytest.param([request(0), request(1, frames=1)], [], [1], None, id="it has read nothing"),
        pytest.param(
            [request(0, tasks=[CAN_WAIT]), request(1, frames=2)], [], [1], None, id="some questions can wait"
        ),
        pytest.param(
            [request(0, tasks=[CAN_WAIT], has_more=True)], [0], [], None, id="but not for idle work"
        ),
        pytest.param(
            [request(0, frames=2, has_more=True, rehearses=True)], [], [], 0, id="a rehearsal goes on"
        ),
        pytest.param(
            [request(0, frames=3, has_more=True, rehearses=True)], [], [0], None, id="a frame ends it"
        ),
        pytest.param(
            [request(0, "a", frames=2, has_more=True, rehearses=True), request(1, "b", has_more=True)],
            [],
            [0],
            None,
            id="no frame waits while another robot rehearses",
        ),
        pytest.param(
            [request(0, "a", tasks=[BEGUN]), request(1, "b", frames=2, has_more=True, rehearses=True)],
            [0],
            [1],
            None,
            id="no frame waits for a rehearsal that waits itself",
        ),
        pytest.param(
            [request(0, has_more=True), request(1, has_more=True), request(2)],
            [],
            [],
            1,
            id="idle work is for the newest window",
        ),
    ],
)
def test_schedule(requests: list[Request], asked: list[int], ahead: list[int], idle: int | None) -> None:
    batch = schedule(requests)
    assert [one.window for one in batch.asked] == asked
    assert [one.window for one in batch.ahead] == ahead
    assert (None if batch.idle is None else batch.idle.window) == idle
    assert bool(batch) == bool(asked or ahead or idle is not None)
