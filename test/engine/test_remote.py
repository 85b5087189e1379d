"""What a robot takes of a target's server, whose link is a stand-in."""

from __future__ import annotations

import json
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
from tokenizers import Tokenizer, models

from crossspec_ros.engine.link import Address, Link
from crossspec_ros.engine.remote import RemoteEngine, RemoteSession
from crossspec_ros.engine.remote_target import RemoteTarget
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.errors import LinkError
from crossspec_ros.paths import tiny_models
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.wire import SERVICE, STREAM
from crossspec_ros.wire import captions_pb2 as wire
from crossspec_ros.wire.bounded import read_down

ADDRESS = Address("grpc://127.0.0.1:1", "robot")


class Quiet(Link):
    """Is up, and says nothing."""

    def _keep(self) -> None:
        self.welcome = wire.Welcome()
        self._began()


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


@pytest.mark.parametrize(
    "figures",
    [{"passes": 2**32 - 1}, {"rows": 2**21}, {"drafted": {"memory": 2**32 - 1}}, {"seconds": float("nan")},
     {"seconds": -1.0}, {"since_asked_s": float("-inf")}],
)  # fmt: skip
def test_absurd_figures_fail_the_answer(session: RemoteSession, figures: dict[str, Any]) -> None:
    step = session.step(DraftTree())
    take(session, 5, **figures)
    with refused("piece-figures-absurd", LinkError):
        step.result(0)


def welcome(tokenizer: str = "", **other: Any) -> wire.Welcome:
    sizes = {"frames": 8, "frames_per_unit": 1, "image_size": 64, "frame_tokens": 8, "most_tokens": 500}
    return wire.Welcome(tokenizer=tokenizer, **{**sizes, "eos_ids": [1], **other})


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


def test_a_welcome_of_a_million_numbers_is_refused() -> None:
    with (
        serving(wire.Down(welcome=welcome(closing_ids=[1] * 1_000_000))) as address,
        refused("welcome-too-large", url=address.url),
    ):
        RemoteEngine(address, 1.0, connect_s=0.5)


def test_a_stream_without_a_welcome_is_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossspec_ros.engine.link._WELCOME_S", 0.5)
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
            link.give_up()
            troubles.add(link.trouble)
            time.sleep(0.01)
        assert link.epoch >= 2 and any("not welcomed this robot within 0.5 s" in one for one in troubles)
        over.set()


def test_a_welcome_with_a_large_tokenizer_is_read() -> None:
    told = wire.Down(welcome=welcome("x" * 1_000_000, eos_ids=range(1000), phase_ns=-1, remembered=5))
    assert read_down(told.SerializeToString()) == told


MANY = wire.Welcome(eos_ids=[1] * 100_000).SerializeToString()


def lengthy(key: int, content: bytes) -> bytes:
    """A field of fewer than two million bytes, on the wire."""
    size = len(content)
    return bytes((key, size & 127 | 128, size >> 7 & 127 | 128, size >> 14)) + content


@pytest.mark.parametrize(
    "data",
    [
        lengthy(0x12, MANY),
        lengthy(0x12, lengthy(0x42, b"x" * 100_000)) + lengthy(0x12, MANY),
        lengthy(0x12, b"\x12\x04" + lengthy(0x42, bytes(len(MANY)))[:4] + MANY),
        lengthy(0x12, b"\x42\x00" * 50_000),
        lengthy(0x1A, lengthy(0x42, bytes(100_000))),
    ],
    ids=["numbers", "second welcome", "within a tokenizer", "small fields", "map of a piece"],
)
def test_messages_that_would_take_much_memory_are_not_read(data: bytes) -> None:
    with refused("message-too-large", size=len(data)):
        read_down(data)


@pytest.mark.parametrize("data", [b"\x12\x05", b"\x12" + b"\xff" * 70_000])
def test_bytes_that_are_no_message_are_told(data: bytes) -> None:
    with refused("message-unreadable", size=len(data)):
        read_down(data)


@pytest.mark.parametrize(
    ("absurd", "code"),
    [({"frames": 0}, "welcome-frames"), ({"frames_per_unit": 2**31}, "welcome-frames-per-unit"),
     ({"image_size": 4097}, "welcome-image-size"), ({"frame_tokens": 2**21}, "welcome-frame-tokens"),
     ({"most_tokens": 0}, "welcome-most-tokens"), ({"eos_ids": []}, "welcome-eos-ids"),
     ({"closing_ids": [1] * 65}, "welcome-closing-ids")],
)  # fmt: skip
def test_absurd_sizes_of_a_target_are_refused(absurd: dict[str, Any], code: str) -> None:
    with refused(code):
        RemoteTarget("grpc://h:1", welcome(words("x").to_str(), **absurd))


def words(*known: str) -> Tokenizer:
    return Tokenizer(models.WordLevel({word: i for i, word in enumerate(known)}, unk_token="x"))


def panicking() -> str:
    document = json.loads((tiny_models() / "target" / "tokenizer.json").read_text())
    document["model"]["continuing_subword_prefix"] = "x" * 30
    return json.dumps(document)


def test_a_tokenizer_that_pads_does_so_no_more() -> None:
    padded = words("x")
    padded.enable_padding(length=100_000)
    assert len(RemoteTarget("grpc://h:1", welcome(padded.to_str())).prompt_ids("x")[1]) == 1


def test_an_unreadable_tokenizer_is_refused() -> None:
    for sent in ("{", panicking()):
        with refused("welcome-tokenizer", library_text=True):
            RemoteTarget("grpc://h:1", welcome(sent))
