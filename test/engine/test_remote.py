"""A robot's side of the link to a target's server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from queue import SimpleQueue
from typing import Any

import grpc
import numpy as np
import pytest
from refusals import refused

from crossspec_ros.engine.link import Address, Link
from crossspec_ros.engine.remote import RemoteEngine, RemoteSession, RemoteTarget
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.errors import InputError, LinkError
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.wire import MAX_SMALL, SERVICE, STREAM
from crossspec_ros.wire import captions_pb2 as wire

ADDRESS = Address("grpc://127.0.0.1:1", "robot")


class Quiet(Link):
    """Is up, and says nothing."""

    def _keep(self) -> None:
        self._begin(wire.Welcome())


@pytest.fixture
def session() -> Iterator[RemoteSession]:
    """One that was asked for 8 tokens, in its first step."""
    engine = RemoteEngine(ADDRESS, 30.0, 5.0, Quiet)
    session = engine.open(1, Trace())
    session.fit([np.zeros((8, 8, 3), np.uint8)], [1])
    session.ask("What?", Trace(), 8)
    yield session
    engine.close()


def take(session: RemoteSession, *token_ids: int, ended: bool = False, **figures: Any) -> None:
    piece = wire.Piece(number=session._answer, token_ids=token_ids, ended=ended, **figures)
    session._engine._take(wire.Down(session=session.number, piece=piece))


@pytest.mark.parametrize("unsound", [(), tuple(range(7))])
def test_a_piece_of_no_tokens_or_of_too_many_fails_the_answer(
    session: RemoteSession, unsound: tuple[int, ...]
) -> None:
    step = session.step(DraftTree())
    take(session, 5, 6)
    assert step.result(0).tokens == (5, 6)
    step = session.step(DraftTree())
    take(session, *unsound)
    with refused("piece-of-wrong-size", LinkError, count=len(unsound)):
        step.result(0)


def test_an_answer_ends_with_all_its_tokens_or_none(session: RemoteSession) -> None:
    step = session.step(DraftTree())
    take(session, *range(8))
    assert len(step.result(0).tokens) == 8
    session.ask("And?", Trace(), 8)
    step = session.step(DraftTree())
    take(session, ended=True)
    assert step.result(0).ended


def welcome(**other: int) -> wire.Welcome:
    sizes = {"frames": 8, "frames_per_unit": 1, "image_size": 64, "frame_tokens": 8, "most_tokens": 500}
    return wire.Welcome(**{**sizes, **other})


@contextmanager
def serving(*said: wire.Down, before: Callable[[], None] = lambda: None) -> Iterator[Address]:
    """A server that says this on each stream, and ends it."""

    def stream(messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        before()
        return (one.SerializeToString() for one in said)

    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.stream_stream_rpc_method_handler(stream)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {STREAM: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield Address(f"grpc://127.0.0.1:{port}", "robot")
    finally:
        server.stop(None).wait()


@contextmanager
def linked(address: Address) -> Iterator[tuple[Link, SimpleQueue[str]]]:
    """A link, and why each of its streams ended."""
    lost = SimpleQueue[str]()
    link = Link(address, lambda message: None, lost.put)
    try:
        yield link, lost
    finally:
        link.close()


def test_large_message_of_a_server_is_refused() -> None:
    large = wire.Down(refused=wire.Refused(sentence="x" * (MAX_SMALL + 1)))
    with serving(large) as address, pytest.raises(InputError, match="resource_exhausted"):
        RemoteEngine(address, 1.0, connect_s=2.0)


def test_a_stream_without_a_welcome_is_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossspec_ros.engine.link.WELCOME_S", 0.5)
    over, streams = threading.Event(), count()

    def say_nothing_once() -> None:
        if next(streams) == 1:
            over.wait(10.0)

    with (
        serving(wire.Down(welcome=welcome()), before=say_nothing_once) as address,
        linked(address) as (link, _),
    ):
        end_s = time.monotonic() + 10.0
        troubles = set[str]()
        while link.epoch < 2 and time.monotonic() < end_s:
            # As the engine's watch does.
            link.check()
            troubles.add(link.trouble)
            time.sleep(0.01)
        assert link.epoch >= 2 and any("not welcomed this robot within 0.5 s" in one for one in troubles)
        over.set()


def test_welcome_without_sizes_is_refused() -> None:
    with refused("welcome-without-sizes"):
        RemoteTarget("grpc://h:1", welcome(frames=0))


def test_welcome_is_short() -> None:
    assert len(wire.Down(welcome=welcome(vocabulary=150_000)).SerializeToString()) < 200
