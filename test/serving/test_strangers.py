"""Who has no token holds none of the streams that robots need."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
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
    made._tokens, made._open = tokens, Counter()
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


def test_a_token_has_few_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hear(*arguments: object) -> AsyncIterator[wire.Down]:
        await asyncio.sleep(HELLO_S)
        yield wire.Down()

    monkeypatch.setattr("crossspec_ros.serving.application.converse", hear)

    async def crowd() -> list[list[wire.Down]]:
        replica = server(TOKENS)

        async def say_nothing(name: str) -> list[wire.Down]:
            metadata = [("authorization", f"Bearer {TOKENS[name]}")]
            context = SimpleNamespace(invocation_metadata=lambda: metadata)
            told: list[wire.Down] = []

            async def listen() -> None:
                async for one in replica.Stream(silence(), context):  # type: ignore[arg-type]
                    told.append(one)

            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(listen(), 0.3)
            return told

        return await asyncio.gather(*[say_nothing("car_7") for _ in range(6)], say_nothing("car_8"))

    *mine, other = asyncio.run(crowd())
    told = [one.refused.sentence for told in mine for one in told]
    assert len(told) == 2 and all("with this token are open" in one for one in told)
    assert not other


def test_strangers_have_streams_beside_those_of_robots() -> None:
    assert build({"robots": 2})._bound_deployment.max_ongoing_requests >= 2 + 64
