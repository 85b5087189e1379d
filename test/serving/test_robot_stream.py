"""A robot's stream on a server: its answers equal the target's, and its failures affect no other robot."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import pytest
from plain_target import QUESTION, first_frames, generated
from refusals import refused

from crossspec_ros.captioning.answer import Answer
from crossspec_ros.drafting.proposers.memory import CaptionMemory
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.errors import InputError, NonFiniteError
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.serving.fleet import Fleet
from crossspec_ros.serving.robot_questions import check_ask, hint_ids
from crossspec_ros.serving.robot_stream import RobotStream
from crossspec_ros.settings import ServeSettings
from crossspec_ros.windows.window import Window
from crossspec_ros.wire import VERSION
from crossspec_ros.wire import captions_pb2 as wire
from crossspec_ros.wire.packed_frames import frame_message

WAIT_S = 60.0
OTHER = "How many cars are there, and of which colour?"
HELLO = wire.Hello(version=VERSION, robot="car", period_ns=10**9)


@pytest.fixture(scope="module")
def fleet(pair: ModelPair) -> Iterator[Fleet]:
    """Yield a fleet without measured costs, which verifies all drafts."""
    fleet = Fleet(pair.target, ServeSettings(robots=2))
    yield fleet
    fleet.close()


class Robot:
    """An admitted robot."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self._received = SimpleQueue[Any]()
        self.stamps_ns: dict[int, list[int]] = {}
        self.stream = RobotStream(fleet, self._received.put)
        self.send(0, hello=wire.Hello(version=VERSION, robot=name, period_ns=10**9))
        assert self.receive().HasField("welcome")

    def send(self, session: int, **what: Any) -> None:
        self.stream.handle(wire.Up(session=session, **what))

    def receive(self) -> Any:
        return self._received.get(timeout=WAIT_S)

    def show(self, session: int, window: Window, *positions: int) -> None:
        """Send the frames at these positions, or all frames."""
        shown = positions or range(len(window.frames))
        stamps_ns = {window.frame_stamps_ns[i] for i in shown}
        self.stamps_ns[session] = sorted(stamps_ns.union(self.stamps_ns.get(session, ())))
        for i in shown:
            self.send(session, frame=frame_message(window.frames[i], window.frame_stamps_ns[i]))

    def ask(self, session: int, number: int, question: str = QUESTION, **more: Any) -> None:
        stamps_ns = self.stamps_ns.get(session, ())
        ask = {"question": question, "max_new_tokens": 64, "stamps_ns": stamps_ns, **more}
        self.send(session, ask=wire.Ask(number=number, **ask))

    def answer(self, number: int) -> tuple[tuple[int, ...], Counter[str]]:
        """Return an answer's tokens and the accepted tokens of each proposer, or raise its refusal."""
        tokens, accepted = list[int](), Counter[str]()
        while True:
            down = self.receive()
            if down.HasField("refused"):
                raise InputError(f"{down.refused.number}: {down.refused.kind}: {down.refused.sentence}")
            if down.piece.number == number:
                tokens += down.piece.token_ids
                accepted.update(down.piece.accepted)
            if down.piece.ended:
                assert down.piece.number == number
                return tuple(tokens), accepted


@pytest.fixture
def robots(fleet: Fleet) -> Iterator[tuple[Robot, Robot]]:
    robots = Robot(fleet, "car"), Robot(fleet, "van")
    yield robots
    for robot in robots:
        robot.stream.end()


@pytest.fixture
def robot(robots: tuple[Robot, Robot]) -> Robot:
    return robots[0]


@contextmanager
def held(fleet: Fleet) -> Iterator[None]:
    """Block the engine's thread."""
    is_held, is_free = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as caller:
        caller.submit(fleet.engine._call, lambda: is_held.set() or is_free.wait(WAIT_S))
        assert is_held.wait(WAIT_S)
        try:
            yield
        finally:
            is_free.set()


def settles(is_so: Callable[[], object]) -> bool:
    end_s = time.monotonic() + WAIT_S
    while not (so := is_so()) and time.monotonic() < end_s:
        time.sleep(0.01)
    return bool(so)


@pytest.mark.parametrize(
    ("hello", "words"),
    [
        (wire.Up(hello=wire.Hello(version=VERSION + 1, robot="x", period_ns=10**9)), "has version"),
        (wire.Up(hello=wire.Hello(version=VERSION, robot="../../etc", period_ns=10**9)), "robot's name"),
        (wire.Up(hello=wire.Hello(version=VERSION, robot="x", period_ns=3)), "period of 3 ns"),
        (wire.Up(session=1, close=wire.Close()), "does not begin with a hello"),
    ],
)
def test_invalid_hello_ends_stream(fleet: Fleet, hello: wire.Up, words: str) -> None:
    with pytest.raises(InputError, match=words):
        RobotStream(fleet, lambda message: None).handle(hello)
    assert fleet.robots == 0


def test_hello_without_a_name_takes_no_place(fleet: Fleet, robots: tuple[Robot, Robot]) -> None:
    """A synchronizer sends it, while the captioner of the same robot keeps its stream."""
    Robot(fleet, "").stream.end()
    assert fleet.robots == len(robots)
    with pytest.raises(InputError, match="does not begin with a hello"):
        Robot(fleet, "").send(1, close=wire.Close())


@pytest.mark.parametrize(
    ("positions", "frames", "limit"),
    [((), 8, 5), ((), 5, 64), ((2, 0, 1, 3), 4, 64)],
    ids=["short", "fewer", "unordered"],
)
def test_answer_equals_target(
    robot: Robot, pair: ModelPair, windows: list[Window], positions: tuple[int, ...], frames: int, limit: int
) -> None:
    robot.show(1, windows[0], *positions)
    stamps_ns = windows[0].frame_stamps_ns[:frames]
    for number, question in enumerate((QUESTION, OTHER), 1):
        robot.ask(1, number, question, max_new_tokens=limit, stamps_ns=stamps_ns)
        wanted = generated(pair, first_frames(windows[0], frames), limit, question)
        assert robot.answer(number)[0] == wanted


def test_invalid_message_does_not_end_the_stream(
    robot: Robot, pair: ModelPair, windows: list[Window]
) -> None:
    frame = frame_message(windows[0].frames[0], 1)
    ask = {"number": 6, "question": QUESTION, "max_new_tokens": 8}
    messages: list[tuple[dict[str, Any], str]] = [
        ({"frame": wire.Frame(stamp_ns=2, height=1 << 20, width=1 << 20, data=b"x")}, "exceeds the limits"),
        ({"frame": wire.Frame(stamp_ns=2, height=8, width=8, data=b"x")}, "bytes"),
        ({"ask": wire.Ask(**ask)}, "no frames"),
        ({"cancel": wire.Cancel()}, ""),
        ({"frame": frame}, ""),
        ({"frame": frame}, "already"),
        ({"frame": wire.Frame(stamp_ns=2, height=1, width=1, data=b"xyz")}, "a single size"),
        ({"ask": wire.Ask(**ask)}, "lacks the frames"),
        ({"ask": wire.Ask(**ask, stamps_ns=[5])}, "lacks the frames"),
        ({"ask": wire.Ask(**ask, stamps_ns=[1] * 9)}, "names 9 frames: send at most 8"),
        ({"ask": wire.Ask(**{**ask, "question": " "})}, "in words"),
        ({"ask": wire.Ask(**ask, temperature=1.0, top_p=1.0, seed=-5)}, "seed -5"),
        ({"ask": wire.Ask(**{**ask, "max_new_tokens": 10**6})}, "1000000"),
        ({"hello": HELLO}, "a second 'hello'"),
    ]
    for message, words in messages:
        robot.send(1, **message)
        if words:
            refusal = robot.receive()
            assert words in refusal.refused.sentence and refusal.session == 1
            assert refusal.refused.number == (6 if "ask" in message else 0)
    robot.ask(1, 7, stamps_ns=[1])
    wanted = generated(pair, first_frames(windows[0], 1))
    assert robot.answer(7)[0] == wanted


def test_oldest_of_four_windows_is_dropped(robot: Robot, pair: ModelPair, windows: list[Window]) -> None:
    for session, window in enumerate(windows, 1):
        robot.show(session, window)
    robot.ask(1, 1)
    with pytest.raises(InputError, match="1: 0: window 1 has no frames"):
        robot.answer(1)
    robot.ask(2, 2)
    assert robot.answer(2)[0] == generated(pair, windows[1])


@pytest.mark.parametrize("is_in_work", [False, True])
def test_second_question_replaces_first(
    robot: Robot, fleet: Fleet, pair: ModelPair, windows: list[Window], is_in_work: bool
) -> None:
    failed = fleet.counts["failed_answers"]
    robot.show(1, windows[0])
    with held(fleet):
        # No memory has this answer, so it needs several passes.
        robot.ask(1, 1, "What is on the left?")
        if not is_in_work:
            robot.ask(1, 2, OTHER)
    if is_in_work:
        piece = robot.receive().piece
        assert piece.number == 1 and not piece.ended
        robot.ask(1, 2, OTHER)
    assert robot.answer(2)[0] == generated(pair, windows[0], question=OTHER)
    assert fleet.counts["failed_answers"] == failed


def test_closed_window_frees_frames_and_buffers(
    robots: tuple[Robot, Robot], fleet: Fleet, pair: ModelPair, windows: list[Window]
) -> None:
    """Reference counting frees the window, its frames, and an answer with embeddings."""
    (robot, other), window = robots, windows[1]
    gc.disable()
    try:
        robot.show(1, window)
        robot.ask(1, 1)
        robot.answer(1)
        robot.show(2, window)
        handles = [one.handle for one in robot.stream._windows.values()]
        frees = [weakref.ref(one) for one in robot.stream._windows.values()]
        with held(fleet):
            robot.ask(2, 2)
            robot.send(1, close=wire.Close())
            robot.stream.end()
            other.show(1, windows[0])
            other.ask(1, 1)
        fleet.engine._call(lambda: None)
        assert [handle.sequence for handle in handles] == [None, None]
        del handles
        assert other.answer(1)[0] == generated(pair, windows[0])
        assert settles(lambda: not any(free() for free in frees))
        assert fleet.robots == 1 and len(fleet.engine._requests) == 1
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (NonFiniteError(), wire.Refused.NOT_FINITE, "finite"),
        (RuntimeError("boom"), wire.Refused.FAILED, "RuntimeError: boom"),
    ],
)
def test_failed_answer_is_refused_and_next_one_works(
    robot: Robot,
    pair: ModelPair,
    windows: list[Window],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    kind: int,
    words: str,
) -> None:
    def fail(*args: object) -> None:
        raise error

    robot.show(1, windows[0])
    with monkeypatch.context() as patch:
        patch.setattr(Answer, "accept", fail)
        robot.ask(1, 1)
        with pytest.raises(InputError, match=f"1: {kind}: .*{words}"):
            robot.answer(1)
    robot.ask(1, 2)
    assert robot.answer(2)[0] == generated(pair, windows[0])


def test_rehearsal_drafts_next_window(pair: ModelPair, windows: list[Window]) -> None:
    """The rehearsal answers the previous window's first question, and begins with half of the frames."""
    settings = ServeSettings(robots=1, proposers=("rehearsal",), fleet_memory=False)
    fleet = Fleet(pair.target, settings)
    robot = Robot(fleet, "car")
    try:
        robot.show(1, windows[0])
        for number, question in enumerate((QUESTION, OTHER), 1):
            robot.ask(1, number, question)
            assert not robot.answer(number)[1]
        robot.show(2, windows[1], 0, 1, 2)
        window = robot.stream._windows[2]

        def is_idle(frames: int) -> bool:
            """Return whether the engine has read this many frames and has no more work."""
            sequence = window.handle.sequence
            return sequence is not None and len(sequence.frames) == frames and not window.handle.has_more

        assert settles(lambda: fleet.engine._call(lambda: is_idle(3)))
        assert not window.rehearsal.passes
        robot.show(2, windows[1], 3, 4, 5, 6)
        assert settles(lambda: fleet.engine._call(lambda: is_idle(7)))
        assert window.rehearsal.is_complete
        plan = robot.stream._rehearsal(window)
        assert plan is not None and plan.question == QUESTION
        robot.show(2, windows[1], 7)
        robot.ask(2, 3)
        tokens, accepted = robot.answer(3)
        assert tokens == generated(pair, windows[1]) and accepted["rehearsal"] > 10
    finally:
        robot.stream.end()
        fleet.close()


def test_wrong_drafts_of_other_robots_change_nothing(
    robot: Robot, fleet: Fleet, pair: ModelPair, windows: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    proposed = []

    def propose(memory: CaptionMemory, *args: object) -> DraftTree:
        proposed.append(memory)
        return DraftTree((5, 6, 7), (-1, 0, 1), (0.99, 0.99, 0.99), (("memory",),) * 3)

    monkeypatch.setattr(CaptionMemory, "propose", propose)
    robot.show(1, windows[2])
    robot.ask(1, 1)
    assert robot.answer(1)[0] == generated(pair, windows[2]) and fleet._shared in proposed


def test_hint_is_drafted_in_the_targets_tokens(robot: Robot, pair: ModelPair, windows: list[Window]) -> None:
    tokens = generated(pair, windows[3])
    text = pair.target.tokenizer.decode(tokens).strip()
    assert hint_ids(pair.target, text) == tokens[:-1]
    robot.show(1, windows[3])
    robot.ask(1, 1, hint=text)
    answer, accepted = robot.answer(1)
    assert answer == tokens and accepted["event_draft"] > 10


def test_long_question_is_refused(pair: ModelPair) -> None:
    with refused("question-too-many-tokens"):
        check_ask(wire.Ask(question="? " * 4900, max_new_tokens=8), pair.target)
