"""Robots of a fleet: who is admitted, when their windows end, and when they are let go."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import wait as wait_for
from contextlib import closing
from pathlib import Path

import pytest
from killing import WAIT_S, kill
from refusals import refused

from crossspec_ros.errors import InputError
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.serving.fleet import Fleet, FleetSettings
from crossspec_ros.serving.lanes import MOST_BYTES, MOST_MESSAGES, MOST_WAITING, Rate
from crossspec_ros.telemetry.trace import Trace

SECOND_NS = 1_000_000_000


@pytest.fixture
def fleet(pair: ModelPair, tmp_path: Path) -> Iterator[Fleet]:
    with closing(Fleet(pair.target, FleetSettings(robots=4, memories=tmp_path, idle_s=-1.0))) as fleet:
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


def test_idle_robot_is_let_go(fleet: Fleet) -> None:
    reasons: list[str] = []
    fleet.admit("one", SECOND_NS, 0, reasons.append)
    fleet.let_idle_go()
    assert fleet.counts["let_go"] == 1 and "nothing was heard" in reasons[0]


def test_windows_of_robots_end_apart(fleet: Fleet) -> None:
    phases = []
    for i in range(4):
        phases.append(fleet.emptiest_phase(SECOND_NS))
        fleet.admit(f"r{i}", SECOND_NS, phases[-1], lambda reason: None)
    assert sorted(phases) == [0, SECOND_NS // 4, SECOND_NS // 2, 3 * SECOND_NS // 4]


def test_stuck_robot_delays_no_other(fleet: Fleet) -> None:
    """One piece of its work is in work at most, on however many streams it comes."""
    is_free, is_done, begun = threading.Event(), threading.Event(), list[int]()

    def wait(number: int) -> None:
        begun.append(number)
        is_free.wait(WAIT_S)

    bad, good = fleet.lanes.enter("bad"), fleet.lanes.enter("good")
    works = [bad.do(wait, number) for number in range(MOST_WAITING)]
    with pytest.raises(InputError, match="earlier streams of this robot"):
        fleet.lanes.enter("bad")
    good.do(is_done.set)
    assert is_done.wait(WAIT_S) and begun == [0]
    fleet.threads.patience_s = 3
    assert (
        "the thread of the robot 'bad' has been stuck for 3 s" in [fleet.threads.look() for _ in range(4)][-1]
    )
    is_free.set()
    wait_for(works, WAIT_S)
    fleet.lanes.enter("bad")
    for lane in (bad, bad, good):
        fleet.lanes.leave(lane)
    assert fleet.threads.look() == "" and not fleet.lanes.pulses and begun == [*range(MOST_WAITING)]


def test_robot_with_too_many_messages_is_refused() -> None:
    rate = Rate()
    for _ in range(MOST_MESSAGES):
        rate.check("loud", 4, 10.0)
    rate.check("quiet", 4, 10.0)
    with refused("robot-too-loud"):
        rate.check("loud", 4, 10.9)
    rate.check("loud", 4, 11.0)
    with refused("robot-too-loud"):
        rate.check("loud", MOST_BYTES, 11.9)
