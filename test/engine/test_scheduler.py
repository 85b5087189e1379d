"""Table of the scheduler's choices."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np
import pytest

from crossspec_ros.engine.request import Frame, Request
from crossspec_ros.engine.scheduler import schedule

NEW, BEGUN, CAN_WAIT = (
    SimpleNamespace(can_wait=False, has_begun=False),
    SimpleNamespace(can_wait=False, has_begun=True),
    SimpleNamespace(can_wait=True, has_begun=False),
)


def request(
    window, robot="", frames=0, tasks=(), is_read=False, is_requested=False, has_more=False, rehearses=False
):
    made = Request(window, robot, is_requested=is_requested, has_more=has_more or rehearses)
    made.frames.extend(Frame(np.empty(0), i) for i in range(frames))
    made.tasks.extend(tasks)
    made.sequence = object() if is_read else None
    if rehearses:
        made.rehearsal = SimpleNamespace(has_begun=True, future=Future())
        made.sequence = SimpleNamespace(ends_rehearsal=lambda frames: frames > 2)
    return made


def answering(window, robot="", task=NEW, **more):
    return request(window, robot, tasks=[task], **more)


CASES = {
    "nothing": ([], [], [], None),
    "a frame": ([request(0, frames=1)], [], [0], None),
    "an answer first": ([answering(0), request(1, frames=3)], [0], [], None),
    "the newest window first": ([answering(0), answering(1)], [1], [], None),
    "a begun task continues": ([answering(0, task=BEGUN), answering(1)], [0], [], None),
    "robots share passes": ([answering(0, "a"), answering(1, "b", BEGUN)], [0, 1], [], None),
    "a window's frames wait for its answer": ([answering(0, task=BEGUN, frames=2)], [0], [], None),
    "another robot's frames pile up": ([answering(0, "a", BEGUN), request(1, "b", frames=2)], [0], [1], None),
    "a single frame waits": ([answering(0, "a", BEGUN), request(1, "b", frames=1)], [0], [], None),
    "before a first pass all frames wait": ([answering(0, "a"), request(1, "b", frames=9)], [0], [], None),
    "the window before closes soon": ([request(0, is_read=True), request(1, frames=1)], [], [], None),
    "it does not close soon": ([request(0, is_read=True), request(1, frames=2)], [], [1], None),
    "it is answered": ([request(0, is_read=True, is_requested=True), request(1, frames=1)], [], [1], None),
    "it has read nothing": ([request(0), request(1, frames=1)], [], [1], None),
    "some questions can wait": ([answering(0, task=CAN_WAIT), request(1, frames=2)], [], [1], None),
    "but not for idle work": ([answering(0, task=CAN_WAIT, has_more=True)], [0], [], None),
    "a rehearsal goes on": ([request(0, frames=2, rehearses=True)], [], [], 0),
    "a frame ends it": ([request(0, frames=3, rehearses=True)], [], [0], None),
    "no frame waits while another robot rehearses": (
        [request(0, "a", frames=2, rehearses=True), request(1, "b", has_more=True)], [], [0], None,
    ),
    "no frame waits for a rehearsal that waits itself": (
        [answering(0, "a", BEGUN), request(1, "b", frames=2, rehearses=True)], [0], [1], None,
    ),
    "idle work is for the newest window": (
        [request(0, has_more=True), request(1, has_more=True), request(2)], [], [], 1,
    ),
}  # fmt: skip
"""Requests, and the windows that are answering, prefilled, or used for idle work."""


@pytest.mark.parametrize(("requests", "answering", "ahead", "idle"), CASES.values(), ids=CASES)
def test_schedule(requests, answering, ahead, idle):
    batch = schedule(requests)
    assert [one.window for one in batch.answering] == answering
    assert [one.window for one in batch.ahead] == ahead
    assert (None if batch.idle is None else batch.idle.window) == idle
    assert bool(batch) == bool(answering or ahead or idle is not None)
