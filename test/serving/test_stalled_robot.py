"""A robot that asks and then says nothing more, or says it too soon, costs the others nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import wait

import pytest
from plain_target import QUESTION

from crossspec_ros.models.pair import ModelPair
from crossspec_ros.serving.fleet import Fleet, FleetSettings
from crossspec_ros.serving.robot_stream import RobotStream
from crossspec_ros.windows.window import Window
from crossspec_ros.wire import VERSION
from crossspec_ros.wire import captions_pb2 as wire
from crossspec_ros.wire.packed_frames import frame_message

WAIT_S = 10.0


@pytest.fixture
def fleet(pair: ModelPair) -> Iterator[Fleet]:
    fleet = Fleet(pair.target, FleetSettings(robots=2, fleet_memory=False))
    yield fleet
    fleet.close()


class Heard:
    """A robot's stream whose pieces can be waited for."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.piece = threading.Event()
        self.refusals: list[str] = []
        self.stream = RobotStream(fleet, self._hear)
        self.stream.take(wire.Up(hello=wire.Hello(version=VERSION, robot=name, period_ns=1_000_000_000)))

    def say(self, **what: object) -> None:
        self.stream.take(wire.Up(session=1, **what))  # type: ignore[arg-type]

    def _hear(self, message: wire.Down | None) -> None:
        if message is not None and message.WhichOneof("what") == "piece":
            self.piece.set()
        if message is not None and message.WhichOneof("what") == "refused":
            self.refusals.append(message.refused.sentence)


def test_frames_are_read_ahead_while_a_robot_owes_a_tree(fleet: Fleet, windows: list[Window]) -> None:
    stalled, other = Heard(fleet, "stalled"), Heard(fleet, "other")
    try:
        frames = [frame_message(frame, stamp) for stamp, frame in enumerate(windows[0].frames[:3])]
        stalled.say(frame=frames[0])
        stalled.say(fit=wire.Fit(stamps_ns=[0]))
        stalled.say(ask=wire.Ask(number=1, question=QUESTION, max_new_tokens=64, stepwise=True))
        assert stalled.piece.wait(WAIT_S)
        for frame in frames:
            other.say(frame=frame)
        appended = other.stream._windows[1].session._appended  # type: ignore[attr-defined]
        assert not wait(appended, 2.0).not_done
        # It may still go on.
        stalled.piece.clear()
        stalled.say(draft=wire.Draft(number=1))
        assert stalled.piece.wait(WAIT_S)
    finally:
        stalled.stream.end()
        other.stream.end()


def test_a_tree_after_a_refused_question_leads_to_no_pass(fleet: Fleet, windows: list[Window]) -> None:
    """Each added a token to the sequence, without end."""
    sly = Heard(fleet, "sly")
    try:
        sly.say(frame=frame_message(windows[0].frames[0], 0))
        sly.say(fit=wire.Fit(stamps_ns=[0]))
        ask = wire.Ask(number=1, question=QUESTION, max_new_tokens=64, stepwise=True)
        ask.draft.parents.append(7)
        for _ in range(3):
            sly.say(ask=ask)
            sly.say(draft=wire.Draft(number=1))
        assert not sly.piece.wait(1.0)
        assert ["ask stepwise before" in sentence for sentence in sly.refusals] == 3 * [False, True]
    finally:
        sly.stream.end()


def _hurry(robot: Heard, windows: list[Window], sessions: range) -> None:
    """Ask about windows with one frame each, and drop each at once."""
    frame = frame_message(windows[0].frames[0], 0)
    for session in sessions:
        for what in ({"frame": frame}, {"fit": wire.Fit(stamps_ns=[0])}, {"close": wire.Close()}):
            robot.stream.take(wire.Up(session=session, **what))


def test_windows_that_are_dropped_at_once_cost_nothing_and_do_not_pile_up(
    fleet: Fleet, windows: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    hasty, encoded = Heard(fleet, "hasty"), list[object]()
    free = threading.Event()
    monkeypatch.setattr(fleet.engine, "sequence", lambda *of: encoded.append(of))
    fleet.engine.scheduler.submit(free.wait)
    _hurry(hasty, windows, range(1, 5))
    more = threading.Thread(target=_hurry, args=(hasty, windows, range(5, 6)))
    more.start()
    try:
        more.join(0.3)
        assert more.is_alive() and len(hasty.stream._closing) == 4
    finally:
        free.set()
        more.join(WAIT_S)
    hasty.stream.end()
    assert len(encoded) <= 1 and not hasty.refusals


def test_a_seed_that_is_none_holds_nobody_up(fleet: Fleet, windows: list[Window]) -> None:
    rash = Heard(fleet, "rash")
    rash.say(frame=frame_message(windows[0].frames[0], 0))
    ask = {"question": QUESTION, "max_new_tokens": 4, "stepwise": True, "temperature": 1.0, "top_p": 1.0}
    rash.say(ask=wire.Ask(number=1, seed=-5, **ask))
    assert "seed -5" in rash.refusals[0] and not fleet.engine.scheduler.answering
    rash.stream.end()
