"""Unneeded streams end: streams without a token, and streams that are not read."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import aclosing, closing
from types import SimpleNamespace
from typing import Any

import pytest

from crossspec_ros.models.pair import ModelPair
from crossspec_ros.serving import application, conversation
from crossspec_ros.serving.application import CaptionServer
from crossspec_ros.serving.conversation import HELLO_S, converse
from crossspec_ros.serving.fleet import Fleet
from crossspec_ros.settings import ServeSettings
from crossspec_ros.wire import VERSION
from crossspec_ros.wire import captions_pb2 as wire

TOKENS = {"car": "0123456789abcdef0123", "van": "0123456789abcdef0124"}
WELCOME = wire.Down(welcome=wire.Welcome(frames=8))
MAX_UNREAD = 8


def replica(tokens: dict[str, str]) -> CaptionServer:
    """Return a replica without a target."""
    made = object.__new__(CaptionServer)
    made._tokens, made._streams = tokens, defaultdict(list)
    made._fleet = SimpleNamespace(counts=Counter(), close=lambda: None)
    return made


async def received(server: CaptionServer, *metadata: tuple[str, str]) -> list[wire.Down]:
    """Return the messages to a stream that sends nothing."""

    async def silence() -> AsyncIterator[bytes]:
        await asyncio.sleep(2 * HELLO_S)
        yield b""

    context: Any = SimpleNamespace(invocation_metadata=lambda: metadata)
    return [one async for one in server.Stream(silence(), context)]


@pytest.mark.parametrize(
    ("tokens", "sent", "is_welcome"),
    [
        (TOKENS, None, False),
        (TOKENS, "", False),
        (TOKENS, "0123456789abcdef0125", False),
        (TOKENS, TOKENS["van"], True),
        ({}, None, True),
    ],
)
def test_stream_needs_valid_token(
    tokens: dict[str, str], sent: str | None, is_welcome: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def welcome(*arguments: object) -> AsyncIterator[wire.Down]:
        yield WELCOME

    monkeypatch.setattr(application, "converse", welcome)
    server = replica(tokens)
    metadata = [] if sent is None else [("authorization", f"Bearer {sent}")]
    [down] = asyncio.run(asyncio.wait_for(received(server, *metadata), 0.5))
    assert (down == WELCOME) == is_welcome and server._fleet.counts["refused"] == (not is_welcome)
    assert is_welcome or "belongs to no robot" in down.refused.sentence


def test_fifth_stream_of_token_ends_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A robot whose links break can reconnect, even if its old streams are not read."""

    async def wait(*arguments: object) -> AsyncIterator[wire.Down]:
        await asyncio.sleep(HELLO_S)
        yield wire.Down()

    monkeypatch.setattr(application, "converse", wait)

    async def crowd() -> list[bool]:
        server = replica(TOKENS)
        names = [*6 * ["car"], "van"]
        streams = [
            asyncio.create_task(received(server, ("authorization", f"Bearer {TOKENS[name]}")))
            for name in names
        ]
        await asyncio.wait(streams, timeout=0.1)
        ended = [stream.done() for stream in streams]
        assert [len(server._streams[name]) for name in TOKENS] == [4, 1]
        for stream in streams:
            stream.cancel()
        await asyncio.wait(streams)
        assert not any(server._streams.values())
        return ended

    assert asyncio.run(crowd()) == [True, True, False, False, False, False, False]


def test_health_check_disconnects_robots_and_reports_faults() -> None:
    server, done, shown, fault = replica({}), list[str](), dict[str, int](), ["", "stuck"]
    server._fleet = SimpleNamespace(
        threads=SimpleNamespace(look=lambda: fault.pop(0)),
        disconnect_idle=lambda: done.append("disconnected"),
        counts={"refused": 2},
        robots=1,
        engine=SimpleNamespace(answering=0),
        close=lambda: None,
    )
    server._gauges = {
        name: SimpleNamespace(set=lambda value, name=name: shown.update({name: value}))
        for name in ("refused", "robots", "answering")
    }
    asyncio.run(server.check_health())
    assert done == ["disconnected"] and shown == {"refused": 2, "robots": 1, "answering": 0}
    with pytest.raises(RuntimeError, match="stuck"):
        asyncio.run(server.check_health())


def test_stream_without_hello_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "HELLO_S", 0.05)

    async def silence() -> AsyncIterator[bytes]:
        await asyncio.sleep(60)
        yield b""

    async def receive() -> list[wire.Down]:
        fleet: Any = SimpleNamespace()
        return [down async for down in converse(fleet, silence())]

    [down] = asyncio.run(asyncio.wait_for(receive(), 10))
    assert "no message arrived" in down.refused.sentence


@pytest.mark.parametrize("is_late", [False, True])
def test_unread_stream_ends(pair: ModelPair, monkeypatch: pytest.MonkeyPatch, is_late: bool) -> None:
    """Either too many messages wait for the robot, or one waits for too long."""
    monkeypatch.setattr(conversation, "MAX_UNREAD", MAX_UNREAD)
    monkeypatch.setattr(conversation, "UNREAD_S", 0.2 if is_late else 60.0)
    sent = 0

    async def messages() -> AsyncIterator[bytes]:
        nonlocal sent
        hello = wire.Hello(version=VERSION, robot="deaf", period_ns=10**9)
        yield wire.Up(hello=hello).SerializeToString()
        while not is_late and sent < 10 * MAX_UNREAD:
            sent += 1
            # The server answers each with a refusal.
            yield wire.Up(session=1, ask=wire.Ask(number=1)).SerializeToString()
        await asyncio.sleep(60)

    async def stall(fleet: Fleet) -> None:
        async with aclosing(converse(fleet, messages())) as downs:
            await anext(downs)
            # gRPC waits like this while the robot reads nothing.
            while fleet.robots:
                await asyncio.sleep(0.01)
            assert sent < 4 * MAX_UNREAD
            assert len([down async for down in downs]) <= MAX_UNREAD + 2

    async def live(fleet: Fleet) -> None:
        stalled = stall(fleet)
        if is_late:
            with pytest.raises(asyncio.CancelledError):
                await asyncio.create_task(stalled)
        else:
            await stalled
        while fleet.robots:
            await asyncio.sleep(0.01)

    with closing(Fleet(pair.target, ServeSettings(robots=1, fleet_memory=False))) as fleet:
        asyncio.run(asyncio.wait_for(live(fleet), 20))
