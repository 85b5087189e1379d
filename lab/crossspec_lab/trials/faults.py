"""`crossspec bench faults`: what a served target and its robots survive, while other robots caption on."""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from crossspec_lab.compare.harness import table, tell
from crossspec_lab.trials.faults_fleet import (
    CUT_S,
    FAILED,
    PATIENCE_S,
    RIGHT,
    STRANGERS,
    WRONG,
    Case,
    Life,
    Proxy,
    Server,
    cases_of,
)
from crossspec_lab.trials.mutations import mutated
from crossspec_lab.world.phrases import QUESTION
from crossspec_ros.engine.link import Address
from crossspec_ros.engine.remote import RemoteEngine
from crossspec_ros.errors import InputError
from crossspec_ros.models.loading import load_pair
from crossspec_ros.paths import tiny_models
from crossspec_ros.wire import METHOD, VERSION
from crossspec_ros.wire import captions_pb2 as wire
from crossspec_ros.wire.packed_frames import frame_message

_AGAIN_S = 180.0
_FEW = 4
"""Robots that caption on during faults; as many as two cores serve in real time."""


def run(args: argparse.Namespace) -> int:
    """Measure and tell; 1 where a caption was wrong. Raises RuntimeError where a robot stays away."""
    pair = load_pair(tiny_models())
    cases = cases_of(pair)
    rows: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="crossspec_faults_") as name, contextlib.ExitStack() as stack:
        server = Server(Path(name), args.robots, args.threads)
        stack.callback(server.stop)
        proxy = Proxy(server.port)
        stack.callback(proxy.close)
        lives = [Life(i, proxy.port, cases) for i in range(args.robots)]
        for life in lives:
            stack.callback(life.end)
        print(f"{args.robots} robots, {args.windows} windows, coming and going at random ...", flush=True)
        rows["none"] = told(lives, lambda: _until(lives, args.windows))
        for life in lives[_FEW:]:
            life.end()
        few = lives[:_FEW]
        for fault, do in (
            ("the replica is killed", server.kill),
            ("Serve is restarted", server.restart),
            (f"the link is cut for {CUT_S:g} s", proxy.cut),
            (f"{args.messages} mutated messages", lambda: noise(server, cases, args.messages)),
            ("a wrong token", lambda: _wrong_token(server)),
        ):
            print(f"{fault} ...", flush=True)
            rows[fault] = told(few, do)
        rows["all"] = {key: sum(row[key] for row in rows.values()) for key in (RIGHT, WRONG, FAILED)}
    figures = {"robots": args.robots, "windows": args.windows, "messages": args.messages, "faults": rows}
    print(text(figures))
    tell(args, figures)
    return 1 if rows["all"][WRONG] else 0


def _until(lives: Sequence[Life], windows: int) -> str:
    while sum(life.counts.total() for life in lives) < windows:
        if not all(life.is_alive() for life in lives):
            raise RuntimeError("a robot has ended by itself")
        time.sleep(0.5)
    return ""


def told(lives: Sequence[Life], do: Callable[[], str]) -> dict[str, Any]:
    """Captions of the robots while this was done, and the time afterwards until each got one."""
    before = sum((life.counts for life in lives), Counter[str]())
    note = do()
    over_s = time.monotonic()
    while any(life.right_s < over_s for life in lives) and time.monotonic() < over_s + _AGAIN_S:
        time.sleep(0.02)
    again_s = max(life.right_s for life in lives) - over_s
    if any(life.right_s < over_s for life in lives):
        raise RuntimeError(f"robots have had no caption for {_AGAIN_S:g} s")
    now = sum((life.counts for life in lives), Counter[str]())
    return {key: now[key] - before[key] for key in (RIGHT, WRONG, FAILED)} | {
        "again_s": again_s,
        "note": note,
    }


def _say(address: Address, messages: Iterator[bytes]) -> tuple[str, int]:
    """Send messages on a new stream; return why it ended and how many were refused."""
    refused = 0
    with grpc.insecure_channel(address.url.removeprefix("grpc://")) as channel:
        stream = channel.stream_stream(METHOD, response_deserializer=wire.Down.FromString)
        call = stream(messages, metadata=address.metadata(), timeout=60)
        try:
            for answer in call:
                refused += answer.WhichOneof("what") == "refused"
        except grpc.RpcError as error:
            return str(error.code().name.lower()) if isinstance(error, grpc.Call) else str(error), refused
        finally:
            call.cancel()
    return "ended", refused


def _hello(name: str) -> bytes:
    hello = wire.Hello(version=VERSION, robot=name, period_ns=1_000_000_000)
    return wire.Up(hello=hello).SerializeToString()


def _good(case: Case, session: int) -> list[bytes]:
    """A window and what is asked about it; of every other one, step by step with trees."""
    window, _ = case
    stamps = window.frame_stamps_ns
    messages = [
        wire.Up(session=session, frame=frame_message(frame, stamp))
        for frame, stamp in zip(window.frames, stamps, strict=True)
    ]
    ask = wire.Ask(number=session, question=QUESTION, max_new_tokens=64)
    draft = wire.Draft(number=session, token_ids=[5], probs=[0.5])
    if session % 2 == 0:
        draft = wire.Draft(number=session, token_ids=[5, 6, 7], probs=[0.5, 0.3, 0.9], parents=[-1, -1, 0])
        ask.stepwise = True
        ask.draft.CopyFrom(draft)
    messages += [wire.Up(session=session, fit=wire.Fit(stamps_ns=stamps)), wire.Up(session=session, ask=ask)]
    messages += [wire.Up(session=session, draft=draft)]
    messages += [wire.Up(session=session, close=wire.Close())]
    return [message.SerializeToString() for message in messages]


def noise(server: Server, cases: Sequence[Case], count: int, seed: int = 7) -> str:
    """Say so many mutated messages among good ones; how their streams ended."""
    rng, sent, refused, ends = random.Random(seed), 0, 0, Counter[str]()
    while sent < count:
        name = f"stranger{rng.randrange(STRANGERS - 1)}"
        messages = [message for session in (1, 2, 3) for message in _good(rng.choice(cases), session)]
        # Among good ones, so that what is wrong meets sessions of every kind; frames are most of them.
        noisy = []
        for one in messages:
            is_wrong = rng.random() < (0.5 if len(one) < 1000 else 0.2)
            noisy.append(mutated(rng, one) if is_wrong else one)
            sent += is_wrong
            if is_wrong and not _is_message(noisy[-1]):
                break  # the stream ends with it
        end, count_refused = _say(server.address(name), iter([_hello(name), *noisy]))
        ends[end] += 1
        refused += count_refused
    reasons = ", ".join(f"{number} {reason}" for reason, number in ends.most_common())
    return f"{ends.total()} streams ({reasons}), {refused} refusals"


def _is_message(data: bytes) -> bool:
    try:
        return wire.Up.FromString(data).WhichOneof("what") is not None
    except DecodeError:
        return False


def _wrong_token(server: Server) -> str:
    refused = 0
    for name in ("robot0", "stranger0", "nobody") * 5:
        address = Address(server.address(name).url, name, "another token")
        try:
            RemoteEngine(address, PATIENCE_S, 0.5).close()
        except InputError as error:
            refused += "token" in str(error)
    return f"{refused} of 15 refused"


def text(figures: Mapping[str, Any]) -> str:
    """Return the figures as a table, with the note of each fault."""
    rows = {
        fault: {"right": row[RIGHT], "wrong": row[WRONG], "failed": row[FAILED]}
        | ({"s until all caption": row["again_s"]} if "again_s" in row else {})
        for fault, row in figures["faults"].items()
    }
    notes = [f"{fault}: {row['note']}" for fault, row in figures["faults"].items() if row.get("note")]
    return "\n".join([table("captions while", rows), *notes])
