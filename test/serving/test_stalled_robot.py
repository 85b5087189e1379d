"""A robot in a hurry costs the others nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

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
    """A robot's stream, and the refusals that it got."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.refusals: list[str] = []
        self.stream = RobotStream(fleet, self._hear)
        self.stream.take(wire.Up(hello=wire.Hello(version=VERSION, robot=name, period_ns=1_000_000_000)))

    def _hear(self, message: wire.Down | None) -> None:
        if message is not None and message.WhichOneof("what") == "refused":
            self.refusals.append(message.refused.sentence)


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
