"""Robots of a fleet: admission, phases of their windows, and disconnection."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import wait as wait_for
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from killing import WAIT_S, kill
from refusals import refused

from crossspec_ros.models.pair import ModelPair
from crossspec_ros.serving.conversation import Worker
from crossspec_ros.serving.fleet import MAX_BYTES, MAX_MESSAGES, Fleet, Rate
from crossspec_ros.settings import ServeSettings
from crossspec_ros.telemetry.trace import Trace

SECOND_NS = 1_000_000_000


@pytest.fixture
def fleet(pair: ModelPair, tmp_path: Path) -> Iterator[Fleet]:
    with closing(Fleet(pair.target, ServeSettings(robots=4, memories=str(tmp_path), idle_s=-1.0))) as fleet:
        yield fleet


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_killed_thread_is_a_fault(fleet: Fleet) -> None:
    robot = fleet.admit("one", SECOND_NS, 0, lambda reason: None)
    assert fleet.threads.look() == "" and len(fleet.threads.values) == 2
    keep = robot.keep
    assert keep is not None and keep._thread is not None
    kill(keep._thread, keep._closing.set)
    assert "the caption memory has ended (Killed" in fleet.threads.look()
    fleet.leave(robot)
    assert fleet.threads.look() == ""
    window = fleet.engine.open(1, Trace())
    kill(fleet.engine._thread, lambda: fleet.engine.cancel(window))
    assert "the target has ended (Killed" in fleet.threads.look()


def test_silent_robot_is_disconnected(fleet: Fleet) -> None:
    reasons: list[str] = []
    fleet.admit("one", SECOND_NS, 0, reasons.append)
    fleet.disconnect_idle()
    assert fleet.counts["let_go"] == 1 and "sent no message" in reasons[0]


def test_windows_of_robots_end_apart(fleet: Fleet) -> None:
    phases = []
    for i in range(4):
        phases.append(fleet.emptiest_phase(SECOND_NS))
        fleet.admit(f"r{i}", SECOND_NS, phases[-1], lambda reason: None)
    assert sorted(phases) == [0, SECOND_NS // 4, SECOND_NS // 2, 3 * SECOND_NS // 4]


def test_stuck_stream_delays_no_other(fleet: Fleet) -> None:
    is_free, is_done, begun = threading.Event(), threading.Event(), list[int]()

    def wait(number: int) -> None:
        begun.append(number)
        is_free.wait(WAIT_S)

    bad, good = Worker(fleet, "bad"), Worker(fleet, "good")
    works = [bad.do(partial(wait, number)) for number in range(3)]
    good.do(is_done.set)
    assert is_done.wait(WAIT_S) and begun == [0]
    fleet.threads.patience_s = 3
    assert (
        "the thread of the robot 'bad' has been stuck for 3 s" in [fleet.threads.look() for _ in range(4)][-1]
    )
    is_free.set()
    wait_for([*works, good.finish(is_done.clear), bad.finish(partial(wait, 3))], WAIT_S)
    assert fleet.threads.look() == "" and begun == [0, 1, 2, 3] and not is_done.is_set()
    assert not fleet.pulses


def test_robot_with_too_many_messages_is_refused() -> None:
    rate = Rate()
    for _ in range(MAX_MESSAGES):
        rate.check("loud", 4, 10.0)
    rate.check("quiet", 4, 10.0)
    with refused("robot-too-loud"):
        rate.check("loud", 4, 10.9)
    rate.check("loud", 4, 11.0)
    with refused("robot-too-loud"):
        rate.check("loud", MAX_BYTES, 11.9)
