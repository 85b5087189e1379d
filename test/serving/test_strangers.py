"""Who has no token holds none of the streams that robots need."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest

from crossspec_ros.serving.application import CaptionServer, build
from crossspec_ros.serving.conversation import HELLO_S
from crossspec_ros.wire import captions_pb2 as wire

TOKENS = {"car_7": "0123456789abcdef0123", "car_8": "0123456789abcdef0124"}


def server(tokens: dict[str, str] | None) -> CaptionServer:
    """A replica without a target."""
    made = object.__new__(CaptionServer)
    made._tokens, made._open = tokens, defaultdict(list)
    made._fleet = SimpleNamespace(counts=Counter(), close=lambda: None)  # type: ignore[assignment]
    return made


async def silence() -> AsyncIterator[bytes]:
    await asyncio.sleep(2 * HELLO_S)
    yield b""


def first_words(server: CaptionServer, metadata: list[tuple[str, str]]) -> list[wire.Down]:
    """What a stream that says nothing is told within a moment."""

    async def listen() -> list[wire.Down]:
        context = SimpleNamespace(invocation_metadata=lambda: metadata)
        return [one async for one in server.Stream(silence(), context)]  # type: ignore[arg-type]

    return asyncio.run(asyncio.wait_for(listen(), 0.5))


@pytest.mark.parametrize(
    "metadata",
    [[], [("authorization", "Bearer ")], [("authorization", "Bearer 0123456789abcdef0125")]],
)
def test_a_stream_without_a_robots_token_ends_before_it_has_said_anything(
    metadata: list[tuple[str, str]],
) -> None:
    replica = server(TOKENS)
    told = first_words(replica, metadata)
    assert ["not that of any robot" in one.refused.sentence for one in told] == [True]
    assert replica._fleet.counts["refused"] == 1


@pytest.mark.parametrize("tokens", [TOKENS, None])
def test_a_stream_with_one_or_where_none_is_asked_for_is_heard(
    tokens: dict[str, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    welcome = wire.Down(welcome=wire.Welcome(frames=8))

    async def hear(*arguments: object) -> AsyncIterator[wire.Down]:
        yield welcome

    monkeypatch.setattr("crossspec_ros.serving.application.converse", hear)
    assert first_words(server(tokens), [("authorization", f"Bearer {TOKENS['car_8']}")]) == [welcome]


def test_of_the_streams_of_a_token_the_oldest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A robot whose links break comes back, however many of its streams nobody reads."""

    async def hear(*arguments: object) -> AsyncIterator[wire.Down]:
        await asyncio.sleep(HELLO_S)
        yield wire.Down()

    monkeypatch.setattr("crossspec_ros.serving.application.converse", hear)

    async def crowd() -> list[bool]:
        replica = server(TOKENS)

        async def say_nothing(name: str) -> None:
            metadata = [("authorization", f"Bearer {TOKENS[name]}")]
            context = SimpleNamespace(invocation_metadata=lambda: metadata)
            async for _ in replica.Stream(silence(), context):  # type: ignore[arg-type]
                pass

        streams = [asyncio.create_task(say_nothing("car_7")) for _ in range(6)]
        streams.append(asyncio.create_task(say_nothing("car_8")))
        await asyncio.wait(streams, timeout=0.1)
        ended = [stream.done() for stream in streams]
        assert [len(replica._open[name]) for name in TOKENS] == [4, 1]
        for stream in streams:
            stream.cancel()
        await asyncio.wait(streams)
        assert not any(replica._open.values())
        return ended

    assert asyncio.run(crowd()) == [True, True, False, False, False, False, False]


def test_strangers_have_streams_beside_those_of_robots() -> None:
    assert build({"robots": 2})._bound_deployment.max_ongoing_requests >= 2 + 64
