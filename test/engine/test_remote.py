"""The robot's side of the link to a target's server."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace

import grpc
import numpy as np
import pytest
from refusals import refused

from crossspec_ros.captioning.answer import Answer, Stop
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import Context
from crossspec_ros.engine.link import Address, Link
from crossspec_ros.engine.remote import RemoteEngine, RemoteTarget
from crossspec_ros.errors import InputError, LinkError, NonFiniteError
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.wire import MAX_SMALL, SERVICE, STREAM
from crossspec_ros.wire import captions_pb2 as wire

PATIENCE_S = 30.0
FRAME = np.zeros((8, 8, 3), np.uint8)


class Quiet(Link):
    """A link that is up, and records sent messages unless it is full."""

    def __init__(self, *arguments):
        self.queued = []
        self.is_full = False
        super().__init__(*arguments)

    def _keep(self):
        self._begin(wire.Welcome())

    def send(self, message):
        if not self.is_full:
            self.queued.append(message.WhichOneof("what"))
        return not self.is_full


class Robot:
    """An engine with a quiet link, and one window with an answer of at most 8 tokens."""

    def __init__(self):
        self.engine = RemoteEngine(Address("grpc://127.0.0.1:1", "robot"), PATIENCE_S, 5.0, Quiet)
        self.queued = self.engine.link.queued
        self.window = self.engine.open(1, Trace())
        self.first = self.ask()

    def ask(self):
        window = SimpleNamespace(index=1, draft=None, rehearsal=None)
        answer = Answer(window, Context("What?"), Policy((), None), Trace(), 8)
        self.engine.ask(self.window, answer, ([FRAME], [1]))
        return answer

    def hear(self, what, number=0):
        """Receive a message about the answer of this number, or about the running one."""
        what.number = number or self.window.answer_number
        down = wire.Down(session=self.window.number)
        (down.piece if isinstance(what, wire.Piece) else down.refused).CopyFrom(what)
        self.engine._take(down)


@pytest.fixture
def robot():
    robot = Robot()
    yield robot
    robot.engine.close()


@pytest.mark.parametrize(
    ("last", "tokens", "error"),
    [
        (wire.Piece(token_ids=[7], ended=True), (5, 6, 7), None),
        (wire.Piece(token_ids=range(6)), (5, 6, *range(6)), None),
        (wire.Piece(ended=True), (5, 6), None),
        (wire.Piece(token_ids=range(7)), (5, 6, *range(7)), None),
        (wire.Piece(token_ids=[7], seconds=float("nan")), (5, 6), ValueError),
        (wire.Refused(kind=wire.Refused.FAILED), (5, 6), LinkError),
        (wire.Refused(kind=wire.Refused.QUESTION), (5, 6), InputError),
        (wire.Refused(kind=wire.Refused.NOT_FINITE), (5, 6), NonFiniteError),
    ],
    ids=str,
)
def test_last_message_ends_answer(robot, last, tokens, error):
    robot.hear(wire.Piece(token_ids=[5, 6], drafted={"memory": 3}, accepted={"memory": 1}, passes=2))
    robot.hear(wire.Refused(), robot.window.answer_number + 1)
    assert robot.first.tokens == (5, 6) and not robot.first.future.done()
    robot.hear(last)
    robot.hear(wire.Piece(token_ids=[9]))
    failure = robot.first.future.exception(0)
    assert robot.first.tokens == tokens and (failure is None or type(failure) is error)
    assert (failure is None) == (error is None)
    assert robot.first.passes >= 2 and robot.first.drafted["memory"] == 3
    second = robot.ask()
    robot.hear(wire.Piece(ended=True))
    second.future.result(0)


def test_second_question_replaces_first(robot):
    first = robot.window.answer_number
    second = robot.ask()
    assert isinstance(robot.first.future.exception(0), CancelledError)
    robot.hear(wire.Piece(token_ids=[1]), first)
    robot.hear(wire.Piece(token_ids=[2], ended=True))
    second.future.result(0)
    assert (robot.first.tokens, second.tokens) == ((), (2,))


def test_cut_answer_is_cancelled_on_server(robot):
    assert robot.queued[-1] == "ask"
    robot.first.stop = Stop(deadline_ns=0)
    robot.hear(wire.Piece(token_ids=[1]))
    robot.first.future.result(0)
    assert robot.queued[-2:] == ["ask", "cancel"]
    second = robot.ask()
    robot.engine.cancel(robot.window)
    assert isinstance(second.future.exception(0), CancelledError)
    assert robot.queued[-2:] == ["ask", "cancel"]


def test_patience_is_per_piece(robot):
    most_ns = int(0.6 * PATIENCE_S * 1e9)
    for _ in range(3):
        robot.window.heard_ns -= most_ns
        time.sleep(0.05)
        robot.hear(wire.Piece(token_ids=[1]))
    assert not robot.first.future.done()
    robot.window.heard_ns -= 2 * most_ns
    with refused("server-silent", LinkError):
        robot.first.future.result(PATIENCE_S / 2)
    assert robot.engine.counts["late_passes"] == 1


def test_lost_or_full_link_fails_answer(robot):
    robot.engine._lost("gone")
    with pytest.raises(LinkError, match="gone"):
        robot.first.future.result(0)
    robot.engine.link.is_full = True
    with pytest.raises(LinkError, match="queue to the target's server is full"):
        robot.ask().future.result(0)
    robot.engine.link.is_full = False
    third = robot.ask()
    robot.hear(wire.Piece(ended=True))
    third.future.result(0)


def test_frame_is_sent_once_a_stream(robot):
    with ThreadPoolExecutor(8) as cameras:
        list(cameras.map(lambda _: robot.engine.add_frame(robot.window, FRAME, 2), range(8)))
    assert robot.queued == ["frame", "ask", "frame"]
    robot.engine.link.epoch += 1
    robot.ask()
    assert robot.queued[3:] == ["frame", "ask"]


def test_dropped_window_is_closed_once(robot):
    """A later frame would open a window on the server that nothing closes."""
    for _ in range(2):
        robot.engine.drop(robot.window)
    robot.engine.add_frame(robot.window, FRAME, 2)
    answers = robot.first, robot.ask()
    assert all(isinstance(answer.future.exception(0), CancelledError) for answer in answers)
    assert robot.queued == ["frame", "ask", "close"]
    robot.hear(wire.Piece(token_ids=[1]))
    assert robot.first.tokens == ()


def welcome(**other):
    sizes = {"frames": 8, "frames_per_unit": 1, "image_size": 64, "frame_tokens": 8, "most_tokens": 500}
    return wire.Welcome(**{**sizes, **other})


@contextmanager
def serving(*messages, before=lambda: None):
    """Run a server that sends these messages on each stream and ends it."""

    def stream(requests, context):
        before()
        return (one.SerializeToString() for one in messages)

    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.stream_stream_rpc_method_handler(stream)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {STREAM: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield Address(f"grpc://127.0.0.1:{port}", "robot")
    finally:
        server.stop(None).wait()


def test_large_message_is_refused():
    large = wire.Down(refused=wire.Refused(sentence="x" * (MAX_SMALL + 1)))
    with serving(large) as address, pytest.raises(InputError, match="resource_exhausted"):
        RemoteEngine(address, 1.0, connect_s=2.0)


def test_stream_without_welcome_restarts(monkeypatch):
    monkeypatch.setattr("crossspec_ros.engine.link.WELCOME_S", 0.5)
    over, streams, troubles = threading.Event(), count(), set[str]()

    def wait_once():
        if next(streams) == 1:
            over.wait(10.0)

    with serving(wire.Down(welcome=welcome()), before=wait_once) as address:
        link = Link(address, lambda message: None, lambda reason: None)
        end_s = time.monotonic() + 10.0
        while link.epoch < 2 and time.monotonic() < end_s:
            # The engine's watchdog calls this.
            link.check()
            troubles.add(link.trouble)
            time.sleep(0.01)
        assert link.epoch >= 2 and any("not welcomed this robot within 0.5 s" in one for one in troubles)
        over.set()
        link.close()


def test_welcome_without_sizes_is_refused():
    with refused("welcome-without-sizes"):
        RemoteTarget("grpc://h:1", welcome(frames=0))


@pytest.mark.parametrize("url", ["http://a:1", "grpc://a", "grpcs://:5", "grpc://a:1/b", "grpc://a:x", "a:1"])
def test_invalid_address_is_refused(url):
    with refused("server-address", url=f"'{url}'"):
        Address(url, "robot").channel()
