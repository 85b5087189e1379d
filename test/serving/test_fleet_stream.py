"""Robots and their target over real gRPC streams: captions are those of a robot alone, whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from killing import kill
from plain_target import QUESTION, generated
from refusals import refused

from crossspec_ros.captioning.caption import Caption
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.engine.accept import Verifier
from crossspec_ros.engine.link import Address, Link, split_url
from crossspec_ros.engine.remote import RemoteEngine, RemoteTarget
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.errors import LinkError, NonFiniteError
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.serving.conversation import add_servicer, converse
from crossspec_ros.serving.fleet import Fleet, FleetSettings
from crossspec_ros.serving.lanes import MOST_BYTES, MOST_MESSAGES, Rate
from crossspec_ros.serving.options import ServeOptions
from crossspec_ros.serving.robot_asks import hint_ids
from crossspec_ros.serving.serve_command import await_end
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window
from crossspec_ros.wire import METHOD, VERSION
from crossspec_ros.wire import captions_pb2 as wire
from crossspec_ros.wire.packed_frames import frame_message, read_frame

WAIT_S = 30.0
OTHER = "How many cars are there, and of which colour?"


class Server:
    """A fleet behind a plain gRPC server, where Ray Serve's proxy would be; it may end and begin again."""

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
        assert _settles(lambda: not self.fleet.lanes.pulses)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def fleet(pair: ModelPair) -> Iterator[Fleet]:
    fleet = Fleet(pair.target, FleetSettings(robots=4))
    fleet.warm_up()
    yield fleet
    fleet.close()


@pytest.fixture(scope="module")
def server(fleet: Fleet) -> Iterator[Server]:
    server = Server(fleet)
    yield server
    server.close()


def robot(server: Server, name: str, patience_s: float = WAIT_S) -> PrefillHiddenDecoder:
    """A robot's decoder, as the captioner makes it where there is no event draft."""
    engine = RemoteEngine(Address(server.url, name), patience_s, WAIT_S)
    target = RemoteTarget(server.url, engine.link.welcome)
    pair = ModelPair(target, None, None, 0)  # type: ignore[arg-type]
    return PrefillHiddenDecoder(pair, Policy((), None), engine=engine, owns_engine=True)


def caption(decoder: PrefillHiddenDecoder, window: Window) -> Caption:
    for i, frame in enumerate(window.frames):
        decoder.stream_frame(window.index, frame, window.frame_stamps_ns[i], i + 1 == len(window.frames))
    decoder.begin(window.index, QUESTION)
    decoder.advance(window.index, lambda: True)
    return decoder.caption(window, QUESTION, Trace())


def test_captions_of_many_robots_at_once_are_those_of_the_target_alone(
    server: Server, pair: ModelPair, windows: list[Window]
) -> None:
    check_many_robots(server, pair, windows)


def test_captions_of_many_robots_by_llama_cpp_are_those_of_the_target_alone(
    pair: ModelPair, windows: list[Window], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("llama_cpp")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    options = ServeOptions.of({"engine": "llama.cpp", "robots": 4})
    with (
        contextlib.closing(options.fleet(options.load_target())) as fleet,
        contextlib.closing(Server(fleet)) as server,
    ):
        check_many_robots(server, pair, windows)


def test_an_unknown_engine_is_refused() -> None:
    with refused("engine-unknown"):
        ServeOptions.of({"engine": "rust"})


def check_many_robots(server: Server, pair: ModelPair, windows: list[Window]) -> None:
    wanted = [generated(pair, window) for window in windows]

    def live(name: str) -> None:
        rng = random.Random(name)
        decoder = robot(server, name)
        try:
            for i in [rng.randrange(len(windows)) for _ in range(6)]:
                time.sleep(rng.uniform(0, 0.05))
                answer = caption(decoder, windows[i])
                assert answer.token_ids == wanted[i]
                assert answer.text == pair.target.tokenizer.decode(wanted[i]).strip()
            answer = decoder.ask(OTHER, Trace())
            assert answer.token_ids == generated(pair, windows[i], question=OTHER)
        finally:
            decoder.close()

    with ThreadPoolExecutor(4) as robots:
        list(robots.map(live, ["r0", "r1", "r2", "r3"]))
    assert server.fleet.robots == 0 or _settles(lambda: server.fleet.robots == 0)


def _settles(is_so: object, within_s: float = WAIT_S) -> bool:
    end_s = time.monotonic() + within_s
    while time.monotonic() < end_s:
        if is_so():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False


def test_a_report_can_tell_the_link_from_the_target(server: Server, windows: list[Window]) -> None:
    decoder = robot(server, "counted")
    try:
        caption(decoder, windows[0])
        told = decoder.caption(windows[1], QUESTION, Trace())
        up, down = told.traffic
        assert up > sum(len(frame_message(frame, 0).data) for frame in windows[1].frames)
        assert 0 < down < up and 0 < told.round_trip_s < WAIT_S
        assert told.target_passes > 0 and sum(told.drafted.values()) >= sum(told.accepted.values()) > 0
    finally:
        decoder.close()


def test_what_other_robots_said_changes_no_caption(
    server: Server, pair: ModelPair, windows: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    def lie(context: object, budget: int, worth: float) -> DraftTree:
        nonlocal asked
        asked += 1
        return DraftTree((5, 6, 7), (-1, 0, 1), (0.99, 0.99, 0.99), (("memory",),) * 3)

    shared = server.fleet._shared
    assert shared is not None
    monkeypatch.setattr(shared, "propose", lie)
    decoder = robot(server, "gullible")
    try:
        for window in windows[:3]:
            assert caption(decoder, window).token_ids == generated(pair, window)
    finally:
        decoder.close()
    assert asked


def test_non_finite_logits_are_no_link_error(
    server: Server, windows: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A LinkError is a warning only, and the event draft's caption would stand in."""

    def accept(*given: object) -> None:
        raise NonFiniteError

    monkeypatch.setattr(Verifier, "accept", accept)
    with contextlib.closing(robot(server, "nan")) as decoder, pytest.raises(NonFiniteError):
        decoder.caption(windows[0], QUESTION, Trace())


def test_too_long_question_is_no_link_error(server: Server, windows: list[Window]) -> None:
    """The robot has no tokenizer that counts the tokens."""
    with contextlib.closing(robot(server, "wordy")) as decoder:
        caption(decoder, windows[0])
        with refused("question-too-many-tokens") as raised:
            decoder.ask("? " * 4900, Trace())
        assert not isinstance(raised.value, LinkError)


def test_hint_is_the_caption_in_the_targets_tokens(pair: ModelPair, windows: list[Window]) -> None:
    tokens = generated(pair, windows[0])
    text = pair.target.tokenizer.decode(tokens).strip()
    assert hint_ids(pair.target, text) == tokens[:-1]


def test_hint_drafts(
    server: Server, pair: ModelPair, windows: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every guess is verified, whatever it costs.
    monkeypatch.setattr(server.fleet, "cost", None)
    decoder = robot(server, "hinted")
    session = decoder.engine.open(0, Trace())
    session.fit(list(windows[0].frames), windows[0].frame_stamps_ns)
    tokens = generated(pair, windows[0])
    session.ask(QUESTION, Trace(), 64, pair.target.tokenizer.decode(tokens))
    steps = [session.step(DraftTree()).result(WAIT_S)]
    while not steps[-1].ended:
        steps.append(session.step(DraftTree()).result(WAIT_S))
    decoder.close()
    assert sum((step.tokens for step in steps), ()) == tokens
    assert sum(step.proposed.accepted.get("event_draft", 0) for step in steps if step.proposed) > 10


def link(server: Server, name: str) -> Link:
    return Link(Address(server.url, name), lambda message: None, lambda reason: None)


def test_a_full_server_refuses_another_robot_with_a_sentence_and_has_room_once_one_has_gone(
    server: Server,
) -> None:
    links = [link(server, f"full{i}") for i in range(4)]
    try:
        assert all(one.wait(WAIT_S) for one in links)
        with refused("server-full", url=server.url):
            RemoteEngine(Address(server.url, "late"), WAIT_S, connect_s=1.0)
        links.pop().close()
        engine = RemoteEngine(Address(server.url, "late"), WAIT_S, WAIT_S)
        engine.close()
    finally:
        for one in links:
            one.close()


def test_the_same_robot_takes_its_own_place(server: Server) -> None:
    lost: list[str] = []
    first = Link(Address(server.url, "twin"), lambda message: None, lost.append)
    assert first.wait(WAIT_S)
    second = link(server, "twin")
    try:
        assert second.wait(WAIT_S) and _settles(lambda: lost)
        assert "another stream of this name" in lost[0]
    finally:
        first.close()
        second.close()


def test_a_lost_link_fails_what_is_under_way_and_the_next_windows_are_captioned(
    server: Server, pair: ModelPair, windows: list[Window]
) -> None:
    decoder = robot(server, "torn")
    try:
        wanted = generated(pair, windows[1])
        assert caption(decoder, windows[0]).token_ids == generated(pair, windows[0])
        server.stop()
        assert _settles(lambda: not decoder.engine.link.is_up)  # type: ignore[attr-defined]
        with refused("server-lost", LinkError, library_text=True, url=server.url):
            decoder.caption(windows[1], QUESTION, Trace())
        server.start()
        assert decoder.engine.link.wait(WAIT_S)  # type: ignore[attr-defined]
        # Its frames were sent to nobody: they are sent again.
        assert decoder.caption(windows[1], QUESTION, Trace()).token_ids == wanted
    finally:
        decoder.close()


def test_a_server_that_does_not_answer_in_time_blocks_nobody(
    server: Server, windows: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = robot(server, "slow", patience_s=0.1)
    try:
        monkeypatch.setattr(decoder.engine.link, "_on_message", lambda message: None)  # type: ignore[attr-defined]
        with refused("server-silent", LinkError):
            decoder.caption(windows[0], QUESTION, Trace())
    finally:
        decoder.close()


def raw(server: Server, messages: list[bytes], seconds: float = 5.0) -> list[wire.Down]:
    """What the server says to these bytes, whatever they are, until it ends the stream or falls silent."""
    with grpc.insecure_channel(server.url.removeprefix("grpc://")) as channel:
        stream = channel.stream_stream(
            METHOD, request_serializer=None, response_deserializer=wire.Down.FromString
        )
        told: list[wire.Down] = []
        with contextlib.suppress(grpc.RpcError):
            told.extend(stream(iter(messages), timeout=seconds))
        return told


def hello(name: str, version: int = VERSION) -> wire.Up:
    return wire.Up(hello=wire.Hello(version=version, robot=name, period_ns=1_000_000_000))


@pytest.mark.parametrize(
    ("first", "sentence"),
    [
        (hello("x", VERSION + 1), "speaks version"),
        (hello("../../etc"), "name is"),
        (wire.Up(hello=wire.Hello(version=VERSION, robot="x", period_ns=3)), "windows of 3 ns"),
        (wire.Up(session=1, fit=wire.Fit(stamps_ns=[1])), "did not begin with a hello"),
    ],
)
def test_who_does_not_say_hello_as_it_should_is_told_why(
    server: Server, first: wire.Up, sentence: str
) -> None:
    told = raw(server, [first.SerializeToString()])
    assert [one.WhichOneof("what") for one in told] == ["refused"] and sentence in told[0].refused.sentence


def test_a_robot_whose_frames_take_for_ever_keeps_no_other_waiting(
    server: Server, pair: ModelPair, windows: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    for_ever, in_work = threading.Event(), []

    def stuck(message: wire.Frame) -> np.ndarray:
        if message.height == 7:
            in_work.append(message)
            for_ever.wait(WAIT_S)
        return read_frame(message)

    monkeypatch.setattr("crossspec_ros.serving.robot_stream.read_frame", stuck)
    watch = server.fleet.threads
    monkeypatch.setattr(watch, "patience_s", 3)
    bomb = wire.Up(session=1, frame=wire.Frame(height=7, width=1, data=b"x"))
    said = [hello("bad").SerializeToString(), bomb.SerializeToString()]
    try:
        told = [raw(server, said, 0.3) for _ in range(12)]
        assert "earlier streams of this robot have not ended" in told[-1][0].refused.sentence
        # At most one of its frames is in work, however often it comes.
        assert len(in_work) == 1
        good = robot(server, "good")
        assert caption(good, windows[0]).token_ids == generated(pair, windows[0])
        good.close()
        assert "the thread of the robot 'bad' has been stuck for 3 s" in [watch.look() for _ in range(4)][-1]
    finally:
        for_ever.set()
    assert _settles(lambda: server.fleet.robots == 0 and not server.fleet.lanes.pulses)
    assert watch.look() == ""


def told(server: Server, said: list[wire.Up]) -> Iterator[wire.Down]:
    """Messages of the server to this, for as long as it is listened to."""
    done = threading.Event()

    def messages() -> Iterator[wire.Up]:
        yield from said
        done.wait(WAIT_S)

    with grpc.insecure_channel(server.url.removeprefix("grpc://")) as channel:
        stream = channel.stream_stream(
            METHOD, request_serializer=wire.Up.SerializeToString, response_deserializer=wire.Down.FromString
        )
        try:
            yield from stream(messages(), timeout=WAIT_S)
        finally:
            done.set()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_each_thread_of_the_server_that_is_killed_is_told(pair: ModelPair, tmp_path: Path) -> None:
    fleet = Fleet(pair.target, FleetSettings(robots=1, memories=tmp_path))
    try:
        robot = fleet.admit("one", 1_000_000_000, 0, lambda reason: None)
        assert fleet.threads.look() == "" and len(fleet.threads.values) == 2
        assert robot._keep is not None
        kill(robot._keep._thread, robot._keep._closing.set)
        assert "the caption memory has ended (Killed" in fleet.threads.look()
        fleet.leave(robot)
        assert fleet.threads.look() == ""
        kill(fleet.engine.scheduler._thread, lambda: fleet.engine.scheduler.submit(lambda: None))
        assert "the target has ended (Killed" in fleet.threads.look()
    finally:
        fleet.close()


def test_what_cannot_be_taken_is_refused_and_the_stream_goes_on(
    server: Server, windows: list[Window]
) -> None:
    frame = frame_message(windows[0].frames[0], 1)

    def ask(question: str = QUESTION, tokens: int = 8, **more: Any) -> dict[str, object]:
        return {"ask": wire.Ask(number=6, question=question, max_new_tokens=tokens, **more)}

    refused: list[tuple[dict[str, object], str]] = [
        ({"frame": wire.Frame(stamp_ns=2, height=1 << 20, width=1 << 20, data=b"x")}, "is held of a robot"),
        (ask(), "no frames"),
        ({"frame": frame}, ""),
        ({"frame": frame}, "already"),
        ({"fit": wire.Fit(stamps_ns=[5])}, "lacks the frames"),
        ({"fit": wire.Fit(stamps_ns=[1])}, ""),
        (ask(temperature=1.0, top_p=1.0, seed=-5), "seed -5"),
        (ask(tokens=10**6), "1000000"),
        ({"hello": wire.Hello(version=VERSION, robot="clumsy")}, "once more"),
    ]
    last = wire.Ask(number=7, question=QUESTION, max_new_tokens=64)
    said = [hello("clumsy"), *(wire.Up(session=1, **what) for what, _ in refused)]  # type: ignore[arg-type]
    sentences, tokens = [], 0
    for one in told(server, [*said, wire.Up(session=1, ask=last)]):
        if one.WhichOneof("what") == "refused":
            sentences.append(one.refused.sentence)
        elif one.WhichOneof("what") == "piece":
            tokens += len(one.piece.token_ids)
            assert one.piece.number == 7
            if one.piece.ended:
                break
    assert tokens > 3
    for part, sentence in zip([part for _, part in refused if part], sentences, strict=True):
        assert part in sentence


def test_a_server_whose_proxy_has_ended_says_so() -> None:
    proxy = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"], text=True)
    assert "the proxy for TLS has ended with code 3" in await_end(proxy, 0.01)


def test_a_robot_that_says_too_much_is_cut_off() -> None:
    rate = Rate()
    for _ in range(MOST_MESSAGES):
        rate.check("loud", 4, 10.0)
    rate.check("quiet", 4, 10.0)
    with refused("robot-too-loud"):
        rate.check("loud", 4, 10.9)
    rate.check("loud", 4, 11.0)
    with refused("robot-too-loud"):
        rate.check("loud", MOST_BYTES, 11.9)


def test_an_idle_robot_is_let_go(pair: ModelPair) -> None:
    fleet, told = Fleet(pair.target, FleetSettings(robots=1, idle_s=-1.0)), list[str]()
    try:
        fleet.admit("one", 1_000_000_000, 0, told.append)
        fleet.let_idle_go()
        assert fleet.counts["let_go"] == 1 and "nothing was heard" in told[0]
    finally:
        fleet.close()


def test_windows_of_robots_end_as_far_apart_as_can_be(pair: ModelPair) -> None:
    fleet = Fleet(pair.target, FleetSettings(robots=4, fleet_memory=False))
    try:
        second, phases = 1_000_000_000, []
        for i in range(4):
            phase = fleet.emptiest_phase(second)
            fleet.admit(f"r{i}", second, phase, lambda reason: None)
            phases.append(phase)
        assert sorted(phases) == [0, second // 4, second // 2, 3 * second // 4]
    finally:
        fleet.close()


def test_frames_come_over_as_they_are() -> None:
    frame = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)
    assert (read_frame(frame_message(frame, 3)) == frame).all()
    bare = wire.Frame(height=48, width=64, data=frame.tobytes())
    assert (read_frame(bare) == frame).all()


@pytest.mark.parametrize("url", ["http://a:1", "grpc://a", "grpcs://:5", "grpc://a:1/b", "grpc://a:x", "a:1"])
def test_what_is_no_address_is_told(url: str) -> None:
    with refused("server-address", url=f"'{url}'"):
        split_url(url)


def test_a_server_that_serves_another_target_now_is_not_taken(server: Server, pair: ModelPair) -> None:
    one = link(server, "loyal")
    try:
        assert one.wait(WAIT_S)
        one.welcome.image_size += 1
        server.stop()
        server.start()
        assert _settles(lambda: "serves another target" in one.trouble) and not one.is_up
    finally:
        one.close()
