"""A stream of messages up becomes a stream of messages down: the ingress of a robot, whatever carries it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from crossspec_ros.errors import InputError, described
from crossspec_ros.serving.fleet import Fleet
from crossspec_ros.serving.lanes import Lane
from crossspec_ros.serving.robot_stream import RobotStream
from crossspec_ros.wire import MAX_SMALL, SERVICE, STREAM
from crossspec_ros.wire import captions_pb2 as wire

_LOG = logging.getLogger(__name__)

_ENDS = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)

HELLO_S = 10.0
"""Within which a stream must begin."""
MOST_UNREAD = 4096
"""Messages that may wait for a robot that does not read them."""
UNREAD_S = 30.0
"""Time in which one message must have gone."""


def refusal(sentence: str) -> wire.Down:
    """After which the stream ends."""
    return wire.Down(refused=wire.Refused(sentence=sentence[:1000]))


def read_message(data: bytes) -> wire.Up | None:
    """Return a robot's message; None for an invalid one, or one that is too large for what it is."""
    try:
        message = wire.Up.FromString(data)
    except DecodeError:
        return None
    kind = message.WhichOneof("what")
    is_small = len(data) <= MAX_SMALL or kind == "frame"
    return message if kind is not None and is_small else None


async def converse(
    fleet: Fleet, messages: AsyncIterator[bytes], admit: Callable[[wire.Hello], None] = lambda hello: None
) -> AsyncIterator[wire.Down]:
    """Messages for a robot in return for its own; end with these, or when it is refused or let go.

    `admit` raises InputError for a robot that must not come.
    """
    loop = asyncio.get_running_loop()
    answers: asyncio.Queue[wire.Down | None] = asyncio.Queue()

    def send(message: wire.Down | None) -> None:
        if message is None or answers.qsize() <= MOST_UNREAD:
            loop.call_soon_threadsafe(answers.put_nowait, message)
        else:
            # It would not read that either, and may begin anew.
            stream.stop()
            loop.call_soon_threadsafe(reader.cancel)

    stream = RobotStream(fleet, send)
    lane: Lane | None = None

    def refuse(sentence: str) -> None:
        send(refusal(sentence))
        send(None)

    def end(lane: Lane) -> None:
        try:
            stream.end()
        finally:
            fleet.lanes.leave(lane)

    def end_stranger() -> None:
        if lane is None:
            refuse(f"nothing was said for {HELLO_S:g} s: begin with a hello")

    async def read() -> None:
        nonlocal lane
        try:
            async for data in messages:
                message = read_message(data)
                if message is None:
                    fleet.counts["refused_messages"] += 1
                    raise InputError(f"a message of {len(data)} bytes cannot be read: see captions.proto")
                if message.WhichOneof("what") == "hello":
                    admit(message.hello)
                lane = lane or fleet.lanes.enter(message.hello.robot)
                fleet.rate.check(lane.robot, len(data))
                # Frames are decompressed there, and questions tokenized.
                await asyncio.wrap_future(lane.do(stream.take, message))
        except InputError as error:
            refuse(str(error))
        except asyncio.CancelledError:
            pass  # nobody awaits this, and its traceback would keep the last message
        except _ENDS:
            raise
        except BaseException as error:  # also a panic in a library: the robot is to know
            _LOG.error("a robot's stream failed: %s", described(error))
            refuse(f"the server failed: {type(error).__name__}: {error}")
        finally:
            stream.stop()
            try:
                if lane is not None:
                    # Or a second cancellation takes it from the thread's queue, and the robot stays for ever.
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.shield(asyncio.wrap_future(lane.do(end, lane)))
            finally:
                send(None)

    reader = asyncio.create_task(read())
    # Else strangers could hold all the streams that a replica takes.
    patience = loop.call_later(HELLO_S, end_stranger)
    try:
        while (answer := await answers.get()) is not None:
            task = asyncio.current_task()
            assert task is not None
            # It is waiting for the robot to read: a generator cannot end while it is at a yield.
            unread = loop.call_later(UNREAD_S, task.cancel)
            try:
                yield answer
            finally:
                unread.cancel()
    finally:
        patience.cancel()
        reader.cancel()


async def again_and_again(period_s: float, do: Callable[[], Awaitable[None]]) -> None:
    """Do this for ever, with so long a pause; what fails is logged, and done again."""
    while True:
        try:
            await do()
        except _ENDS:
            raise
        except BaseException as error:
            _LOG.error("what is done every %g s has failed: %s", period_s, described(error))
        await asyncio.sleep(period_s)


def add_servicer(servicer: Any, server: grpc.aio.Server) -> None:
    """Tell a gRPC server of the service; Ray Serve puts its own behaviour in the place of `servicer`'s.

    It gets messages as they came: what a list takes in memory depends on who sends it.
    """
    handler = grpc.stream_stream_rpc_method_handler(
        getattr(servicer, STREAM),
        response_serializer=wire.Down.SerializeToString,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {STREAM: handler}),))
