"""A robot's gRPC stream: limits, the hello, and the conversion of messages up into messages down."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from crossspec_ros.errors import FATAL_EXCEPTIONS, InputError, described
from crossspec_ros.serving.fleet import Fleet
from crossspec_ros.serving.robot_stream import RobotStream
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.wire import MAX_SMALL, SERVICE, STREAM
from crossspec_ros.wire import captions_pb2 as wire

_LOG = logging.getLogger(__name__)

HELLO_S = 10.0
"""Maximum seconds until the hello. Otherwise unknown clients could hold all streams of a replica."""
MAX_UNREAD = 4096
"""Maximum number of unread messages."""
UNREAD_S = 30.0
"""Maximum seconds until a robot reads a message."""

SET_TOKEN = "set the one in the server's file of tokens"
Send = Callable[[wire.Down | None], None]
"""Thread-safe function that queues a message for the robot. None ends the stream."""


async def converse(fleet: Fleet, messages: AsyncIterator[bytes], owner: str = "") -> AsyncIterator[wire.Down]:
    """Yield messages for a robot in reply to its own, until one side ends the stream.

    With an `owner`, a robot that sends a name must have this one.
    """
    loop = asyncio.get_running_loop()
    answers: asyncio.Queue[wire.Down | None] = asyncio.Queue()

    def send(message: wire.Down | None) -> None:
        if message is None or answers.qsize() <= MAX_UNREAD:
            loop.call_soon_threadsafe(answers.put_nowait, message)
        else:
            # The robot would not read a refusal either, but may connect again.
            stream.stop()
            loop.call_soon_threadsafe(reader.cancel)

    stream = RobotStream(fleet, send)
    reader = asyncio.create_task(_read(fleet, stream, messages, send, owner))
    try:
        while (answer := await answers.get()) is not None:
            task = asyncio.current_task()
            assert task is not None
            # At the yield, the generator waits until the robot reads, and cannot end by itself.
            unread = loop.call_later(UNREAD_S, task.cancel)
            try:
                yield answer
            finally:
                unread.cancel()
    finally:
        reader.cancel()


async def _read(
    fleet: Fleet, stream: RobotStream, messages: AsyncIterator[bytes], send: Send, owner: str
) -> None:
    """Pass the messages to the stream in its own thread, and end the stream after the last one."""
    received, robot = aiter(messages), ""
    worker: Worker | None = None
    try:
        data = await asyncio.wait_for(anext(received), HELLO_S)
        while True:
            message = read_message(data)
            if message is None:
                fleet.counts["refused_messages"] += 1
                raise InputError(f"a message of {len(data)} bytes is invalid: see captions.proto")
            if worker is None:
                robot = message.hello.robot
                if owner and robot and robot != owner:
                    fleet.counts["refused"] += 1
                    raise InputError(f"the token does not belong to the robot '{robot[:64]}': {SET_TOKEN}")
                worker = Worker(fleet, robot)
            fleet.rate.check(robot, len(data))
            # In a thread, because this decompresses frames and tokenizes questions.
            await asyncio.wrap_future(worker.do(partial(stream.handle, message)))
            data = await anext(received)
    except StopAsyncIteration:
        pass
    except asyncio.TimeoutError:
        send(refusal(f"no message arrived within {HELLO_S:g} s: begin with a hello"))
    except InputError as error:
        send(refusal(str(error)))
    except asyncio.CancelledError:
        pass  # this task is not awaited, and a traceback would keep the last message alive
    except (*FATAL_EXCEPTIONS, GeneratorExit):
        raise
    except BaseException as error:  # including panics of libraries
        _LOG.error("a robot's stream failed: %s", described(error))
        send(refusal(f"the server failed: {type(error).__name__}: {error}"))
    finally:
        stream.stop()
        try:
            if worker is not None:
                # The thread ends the stream even if this task is cancelled again.
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.shield(asyncio.wrap_future(worker.finish(stream.end)))
        finally:
            send(None)


class Worker:
    """The thread of a stream, so that robots do not wait for each other."""

    def __init__(self, fleet: Fleet, robot: str) -> None:
        self._pulses, self._pulse = fleet.pulses, Pulse(f"robot {robot!r:.64}")
        self._thread = ThreadPoolExecutor(1, "robot", self._pulse.adopt)
        self._pulses.add(self._pulse)

    def do(self, work: Callable[[], None]) -> Future[None]:
        """Queue work for the thread."""

        def call() -> None:
            with self._pulse.busy():
                work()

        return self._thread.submit(call)

    def finish(self, work: Callable[[], None]) -> Future[None]:
        """Queue the last work of the thread."""
        done = self.do(work)
        self._thread.shutdown(wait=False)
        done.add_done_callback(lambda _: self._pulses.discard(self._pulse))
        return done


def read_message(data: bytes) -> wire.Up | None:
    """Return a robot's message, or None if it is invalid or too large for its kind."""
    try:
        message = wire.Up.FromString(data)
    except DecodeError:
        return None
    kind = message.WhichOneof("what")
    return message if kind == "frame" or (kind and len(data) <= MAX_SMALL) else None


def refusal(sentence: str) -> wire.Down:
    """Return the last message of a stream that the server refuses."""
    return wire.Down(refused=wire.Refused(sentence=sentence[:1000]))


def add_servicer(servicer: Any, server: grpc.aio.Server) -> None:
    """Register the service at a gRPC server. Ray Serve replaces the methods of `servicer`.

    Messages arrive as bytes, because a list in a parsed message could need far more memory.
    """
    method, serialize = getattr(servicer, STREAM), wire.Down.SerializeToString
    handler = grpc.stream_stream_rpc_method_handler(method, response_serializer=serialize)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {STREAM: handler}),))
