"""Robots and their target over gRPC streams: captions equal those of the target, even after failures."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from plain_target import QUESTION, generated
from refusals import refused
from test_robot_stream import OTHER, WAIT_S, settles

from crossspec_ros.captioning.caption import Caption, Options
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.engine.link import Address, Link
from crossspec_ros.engine.remote import RemoteEngine, RemoteTarget
from crossspec_ros.errors import InputError, LinkError
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import has_llama
from crossspec_ros.serving.conversation import add_servicer, converse
from crossspec_ros.serving.fleet import Fleet
from crossspec_ros.serving.load_fleet import load_fleet, load_target
from crossspec_ros.settings import ServeSettings
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window
from crossspec_ros.wire import captions_pb2 as wire
from crossspec_ros.wire.packed_frames import frame_message, read_frame


class Server:
    """A fleet behind a plain gRPC server instead of Ray Serve's proxy. It may stop and start again."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.port = fleet, 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.start()

    @property
    def url(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    def start(self) -> None:
        fleet = self.fleet

        class Servicer:
            async def Stream(
                self, messages: AsyncIterator[bytes], context: object
            ) -> AsyncIterator[wire.Down]:
                async for message in converse(fleet, messages):
                    yield message

        async def start() -> None:
            self._server = grpc.aio.server()
            add_servicer(Servicer(), self._server)
            self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
            await self._server.start()

        self._do(start())

    def stop(self) -> None:
        self._do(self._server.stop(None))

    def close(self) -> None:
        self.stop()
        assert settles(lambda: not self.fleet.pulses)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)


@pytest.fixture(scope="module")
def server(pair: ModelPair) -> Iterator[Server]:
    with closing(Fleet(pair.target, ServeSettings(robots=4))) as fleet:
        fleet.warm_up()
        with closing(Server(fleet)) as server:
            yield server


def connect(server: Server, name: str) -> PrefillHiddenDecoder:
    """Return a robot's decoder without an event draft, as `captioning.load_decoder` makes it."""
    engine = RemoteEngine(Address(server.url, name), WAIT_S, WAIT_S)
    target = RemoteTarget(server.url, engine.link.welcome)
    pair = ModelPair(target)
    return PrefillHiddenDecoder(pair, Policy((), None), engine, owns_engine=True)


def link(server: Server, name: str, on_lost: Callable[[str], None] = lambda reason: None) -> Link:
    return Link(Address(server.url, name), lambda message: None, on_lost)


def caption(decoder: PrefillHiddenDecoder, window: Window) -> Caption:
    for i, frame in enumerate(window.frames):
        decoder.stream_frame(window.index, frame, window.frame_stamps_ns[i], i + 1 == len(window.frames))
    decoder.begin(window.index, Options(QUESTION))
    return decoder.caption(window, Options(QUESTION), Trace())


@pytest.mark.parametrize("engine", ["torch", "llama.cpp"])
def test_captions_of_many_robots_equal_target(
    engine: str, pair: ModelPair, windows: list[Window], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    wanted = [generated(pair, window) for window in windows]

    def live(name: str) -> None:
        rng = random.Random(name)
        with closing(connect(server, name)) as decoder:
            for i in [rng.randrange(len(windows)) for _ in range(6)]:
                time.sleep(rng.uniform(0, 0.05))
                answer = caption(decoder, windows[i])
                assert answer.token_ids == wanted[i]
                assert answer.text == pair.target.tokenizer.decode(wanted[i]).strip()
                up, down = answer.traffic
                assert up > sum(len(frame_message(frame, 0).data) for frame in windows[i].frames)
                assert 0 < down < up and 0 < answer.round_trip_s < WAIT_S and answer.target_passes > 0
            assert sum(answer.drafted.values()) >= sum(answer.accepted.values()) > 0
            answer = decoder.ask(Options(OTHER), Trace())
            assert answer.token_ids == generated(pair, windows[i], question=OTHER)

    with ExitStack() as stack:
        if engine == "torch":
            server: Server = request.getfixturevalue("server")
        else:
            if not has_llama():
                pytest.skip("llama.cpp is not installed")
            stack.enter_context(pytest.MonkeyPatch.context()).setenv("XDG_CACHE_HOME", str(tmp_path))
            settings = ServeSettings.of({"models.engine": engine, "robots": 4})
            fleet = stack.enter_context(closing(load_fleet(settings, load_target(settings))))
            server = stack.enter_context(closing(Server(fleet)))
        with ThreadPoolExecutor(4) as robots:
            list(robots.map(live, ["r0", "r1", "r2", "r3"]))
        assert settles(lambda: server.fleet.robots == 0)


def test_lost_link_fails_one_window(server: Server, pair: ModelPair, windows: list[Window]) -> None:
    wanted = [generated(pair, window) for window in windows[:2]]
    with closing(connect(server, "torn")) as decoder:
        made = decoder.engine.link
        assert caption(decoder, windows[0]).token_ids == wanted[0]
        server.stop()
        assert settles(lambda: not made.up.is_set())
        with refused("server-lost", LinkError, library_text=True, url=server.url):
            decoder.caption(windows[1], Options(QUESTION), Trace())
        server.start()
        assert made.up.wait(WAIT_S)
        # A server has only the frames of this stream: the decoder sends them again.
        assert decoder.caption(windows[1], Options(QUESTION), Trace()).token_ids == wanted[1]
        server.stop()
        assert settles(lambda: not made.up.is_set())
        server.start()
        assert made.up.wait(WAIT_S)
        # A further question needs the frames again as well.
        assert decoder.ask(Options(QUESTION), Trace()).token_ids == wanted[1]
        assert caption(decoder, windows[0]).token_ids == wanted[0]


def test_full_server_refuses_robot_until_another_leaves(server: Server) -> None:
    links = [link(server, f"full{i}") for i in range(4)]
    try:
        assert all(one.up.wait(WAIT_S) for one in links)
        with refused("server-full", url=server.url):
            RemoteEngine(Address(server.url, "late"), WAIT_S, connect_s=1.0)
        links.pop().close()
        RemoteEngine(Address(server.url, "late"), WAIT_S, WAIT_S).close()
    finally:
        for one in links:
            one.close()


def test_second_stream_of_robot_replaces_first(server: Server) -> None:
    lost: list[str] = []
    with closing(link(server, "twin", lost.append)) as first:
        assert first.up.wait(WAIT_S)
        with closing(link(server, "twin")) as second:
            assert second.up.wait(WAIT_S) and settles(lambda: lost)
    assert "another stream with this name" in lost[0]


def test_server_with_another_target_is_refused(server: Server) -> None:
    with closing(link(server, "loyal")) as one:
        assert one.up.wait(WAIT_S)
        one.welcome.image_size += 1
        server.stop()
        server.start()
        assert settles(lambda: "serves another target" in one.trouble) and not one.up.is_set()


def test_frame_is_lossless_on_the_wire() -> None:
    frame = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)
    bare = wire.Frame(height=48, width=64, data=frame.tobytes())
    for message in (frame_message(frame, 3), bare):
        assert (read_frame(message) == frame).all()
    bare.height += 1
    with pytest.raises(InputError):
        read_frame(bare)
