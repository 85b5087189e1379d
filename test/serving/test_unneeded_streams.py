"""Streams that nobody needs end: of strangers without a token, and of robots that do not read."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace

import pytest

from crossspec_ros.models.pair import ModelPair
from crossspec_ros.serving.application import CaptionServer
from crossspec_ros.serving.conversation import HELLO_S, converse
from crossspec_ros.serving.fleet import Fleet, FleetSettings
from crossspec_ros.wire import VERSION
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


MOST = 8
HELLO = wire.Up(hello=wire.Hello(version=VERSION, robot="deaf", period_ns=1_000_000_000)).SerializeToString()


@pytest.fixture
def fleet(pair: ModelPair) -> Iterator[Fleet]:
    fleet = Fleet(pair.target, FleetSettings(robots=1, fleet_memory=False))
    yield fleet
    fleet.close()


async def left(fleet: Fleet) -> None:
    """Wait until the robot has gone."""
    for _ in range(200):
        if not fleet.robots:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the robot has not gone")


def test_a_robot_that_reads_nothing_is_let_go_and_heard_no_more(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossspec_ros.serving.conversation.MOST_UNREAD", MOST)
    said = 0

    async def messages() -> AsyncIterator[bytes]:
        nonlocal said
        yield HELLO
        while said < 10 * MOST:
            said += 1
            # Each is refused with a sentence.
            yield wire.Up(session=1, ask=wire.Ask(number=1)).SerializeToString()
        await asyncio.sleep(60)

    async def live() -> list[wire.Down]:
        answers = converse(fleet, messages())
        await anext(answers)
        await left(fleet)
        assert said < 4 * MOST
        return [answer async for answer in answers]

    # What it finds when it reads at last has an end.
    assert len(asyncio.run(asyncio.wait_for(live(), 10))) <= MOST + 2


def test_a_stream_whose_answer_does_not_go_is_ended(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossspec_ros.serving.conversation.UNREAD_S", 0.2)

    async def messages() -> AsyncIterator[bytes]:
        yield HELLO
        await asyncio.sleep(60)

    async def send() -> None:
        async for _ in converse(fleet, messages()):
            # As gRPC does while nothing more goes.
            await asyncio.sleep(60)

    async def live() -> None:
        sending = asyncio.create_task(send())
        await asyncio.wait([sending], timeout=10)
        assert sending.cancelled()
        await left(fleet)

    asyncio.run(live())
