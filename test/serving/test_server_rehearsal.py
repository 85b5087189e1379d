"""The server rehearses a robot's caption in idle time, and no answer waits for that."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from plain_target import QUESTION, generated

from crossspec_ros.engine.scheduler import Window as Whose
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.serving.fleet import Fleet, FleetSettings
from crossspec_ros.serving.idle_rehearsals import IdleRehearsals
from crossspec_ros.serving.robot_stream import RobotStream
from crossspec_ros.windows.window import Window
from crossspec_ros.wire import VERSION
from crossspec_ros.wire import captions_pb2 as wire
from crossspec_ros.wire.packed_frames import frame_message

WAIT_S = 60.0
OTHER = Whose(0, "other")
"""A window of another robot."""


@pytest.fixture
def fleet(pair: ModelPair) -> Iterator[Fleet]:
    fleet = Fleet(pair.target, FleetSettings(robots=2, proposers=("rehearsal",), fleet_memory=False))
    yield fleet
    fleet.close()


class Robot:
    """A robot's stream that has asked about a first window."""

    def __init__(self, fleet: Fleet, first: Window) -> None:
        self._heard = queue.SimpleQueue[Any]()
        self.stream = RobotStream(fleet, self._heard.put)
        self.stream.take(wire.Up(hello=wire.Hello(version=VERSION, robot="car", period_ns=10**9)))
        self._heard.get(timeout=WAIT_S)
        self.send_frames(1, first, 8)
        self.ask(1, first)

    def send_frames(self, session: int, window: Window, count: int) -> None:
        for frame, stamp_ns in list(zip(window.frames, window.frame_stamps_ns, strict=True))[:count]:
            self.stream.take(wire.Up(session=session, frame=frame_message(frame, stamp_ns)))

    def ask(self, session: int, window: Window) -> tuple[tuple[int, ...], Counter[str]]:
        """Return the answer's tokens, and those accepted of each proposer."""
        stamps_ns = window.frame_stamps_ns
        self.stream.take(wire.Up(session=session, fit=wire.Fit(stamps_ns=stamps_ns)))
        ask = wire.Ask(number=session, question=QUESTION, max_new_tokens=64)
        self.stream.take(wire.Up(session=session, ask=ask))
        tokens: tuple[int, ...] = ()
        accepted, ended = Counter[str](), False
        while not ended:
            piece = self._heard.get(timeout=WAIT_S).piece
            assert piece.token_ids or piece.ended
            tokens, ended = (*tokens, *piece.token_ids), piece.ended
            accepted.update(piece.accepted)
        return tokens, accepted

    def rehearsal(self, session: int) -> tuple[int, ...]:
        rehearsals = self.stream._rehearsals
        assert rehearsals is not None
        return rehearsals.written.get(session, ())


@pytest.fixture
def robot(fleet: Fleet, windows: list[Window]) -> Iterator[Robot]:
    robot = Robot(fleet, windows[0])
    yield robot
    robot.stream.end()


def await_so(is_so: Callable[[], object]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_rehearsal_drafts_the_answer(robot: Robot, pair: ModelPair, windows: list[Window]) -> None:
    wanted = generated(pair, windows[1])
    robot.send_frames(2, windows[1], 7)
    await_so(lambda: robot.rehearsal(2)[-1:] == wanted[-1:])
    last = wire.Up(session=2, frame=frame_message(windows[1].frames[7], windows[1].frame_stamps_ns[7]))
    robot.stream.take(last)
    tokens, accepted = robot.ask(2, windows[1])
    assert tokens == wanted and accepted["rehearsal"] > 10


def test_no_rehearsal_before_half_of_the_frames(robot: Robot, fleet: Fleet, windows: list[Window]) -> None:
    robot.send_frames(2, windows[1], 3)
    await_so(lambda: len(robot.stream._windows[2].session.frames) == 3)
    fleet.engine.scheduler.submit(lambda: None).result(WAIT_S)
    assert not robot.rehearsal(2)


def test_rehearsal_behind_another_robot_delays_no_answer(
    robot: Robot, fleet: Fleet, pair: ModelPair, windows: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits with the robot's policy in its hands."""
    begin, begun, scheduler = IdleRehearsals.begin, threading.Event(), fleet.engine.scheduler

    def begin_behind_another(rehearsals: IdleRehearsals, *given: Any) -> None:
        begin(rehearsals, *given)
        if fleet._robots["car"].turn.locked():
            scheduler.begin_answer(OTHER)
            begun.set()

    monkeypatch.setattr(IdleRehearsals, "begin", begin_behind_another)
    robot.send_frames(2, windows[1], 4)
    assert begun.wait(WAIT_S)
    robot.send_frames(3, windows[2], 8)
    tokens, _ = robot.ask(3, windows[2])
    assert tokens == generated(pair, windows[2]) and not robot.rehearsal(2)
    scheduler.end_answer(OTHER)
