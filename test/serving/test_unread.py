"""A robot that does not read what it is told is let go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from crossspec_ros.models.pair import ModelPair
from crossspec_ros.serving.conversation import converse
from crossspec_ros.serving.fleet import Fleet, FleetSettings
from crossspec_ros.wire import VERSION
from crossspec_ros.wire import captions_pb2 as wire

MOST = 8


def test_a_robot_that_reads_nothing_is_let_go_and_heard_no_more(
    pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossspec_ros.serving.conversation.MOST_UNREAD", MOST)
    fleet = Fleet(pair.target, FleetSettings(robots=1, fleet_memory=False))
    said = 0

    async def messages() -> AsyncIterator[bytes]:
        nonlocal said
        hello = wire.Hello(version=VERSION, robot="deaf", period_ns=1_000_000_000)
        yield wire.Up(hello=hello).SerializeToString()
        while said < 10 * MOST:
            said += 1
            # Each is refused with a sentence, for nothing was asked.
            yield wire.Up(session=1, draft=wire.Draft(number=1)).SerializeToString()
        await asyncio.sleep(60)

    async def live() -> list[wire.Down]:
        answers = converse(fleet, messages())
        await anext(answers)
        for _ in range(200):
            await asyncio.sleep(0.01)
            if not fleet.robots:
                break
        assert not fleet.robots and said < 4 * MOST
        return [answer async for answer in answers]

    try:
        # What it finds when it reads at last has an end.
        assert len(asyncio.run(asyncio.wait_for(live(), 10))) <= MOST + 2
    finally:
        fleet.close()


def test_a_stream_whose_answer_does_not_go_is_ended(pair: ModelPair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossspec_ros.serving.conversation.UNREAD_S", 0.2)
    fleet = Fleet(pair.target, FleetSettings(robots=1, fleet_memory=False))

    async def messages() -> AsyncIterator[bytes]:
        hello = wire.Hello(version=VERSION, robot="deaf", period_ns=1_000_000_000)
        yield wire.Up(hello=hello).SerializeToString()
        await asyncio.sleep(60)

    async def send() -> None:
        async for _ in converse(fleet, messages()):
            # As gRPC does while nothing more goes.
            await asyncio.sleep(60)

    async def live() -> None:
        sending = asyncio.create_task(send())
        await asyncio.wait([sending], timeout=10)
        assert sending.cancelled()
        for _ in range(200):
            await asyncio.sleep(0.01)
            if not fleet.robots:
                break
        assert not fleet.robots

    try:
        asyncio.run(live())
    finally:
        fleet.close()
