"""One robot of `bench fleet`, a process of its own: windows of a drive, over a link that may be slow.

`python -m crossspec_lab.compare.fleet_robot JOB`, a JSON file; writes one JSON line for each window.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crossspec_ros.captioning.answer import Answer
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import Context, make_proposers
from crossspec_ros.engine.link import Address, Link
from crossspec_ros.engine.remote import RemoteEngine, RemoteSession
from crossspec_ros.engine.session import Engine, Step
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.wire import captions_pb2 as wire

if TYPE_CHECKING:
    from crossspec_ros.engine.json_grammar import GrammarState
    from crossspec_ros.engine.sampling import Sampling

OURS, UNSHARED, APART, STEPWISE = "ours", "passes not shared", "a process each", "drafts up each round"
ENCODERS = "frames encoded apart"
WAYS = (OURS, UNSHARED, APART, STEPWISE, ENCODERS)
_RESEND_S = 0.2
"""TCP's shortest wait before it sends again what was lost; what follows waits as well."""
_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Job:
    """Job of a robot: `windows` of the drive in `data`, one every `period_s` (0: at once after the
    last), `phase_s` later than the first robot; over a link of `round_trip_s` that loses the share `loss`."""

    way: str
    name: str
    url: str
    application: str
    data: str
    windows: int
    first: int
    period_s: float
    phase_s: float = 0.0
    round_trip_s: float = 0.0
    loss: float = 0.0


class SlowLink(Link):
    """A link whose messages take half a round trip each way, in their order; lost ones are sent again."""

    def __init__(self, job: Job, address: Address, *listeners: Callable[[Any], None]) -> None:
        self._half_s, self._loss = job.round_trip_s / 2, job.loss
        self._random = random.Random(job.name)
        self._ways = {name: (deque[tuple[float, Any]](), threading.Condition()) for name in ("up", "down")}
        super().__init__(address, *listeners)
        for name, deliver in (("up", super().send), ("down", self._on_message)):
            threading.Thread(target=self._carry, args=(name, deliver), daemon=True).start()
        self._on_message = lambda message: self._take("down", message)

    def send(self, message: wire.Up) -> bool:
        self._take("up", message)
        return True

    def _take(self, name: str, message: Any) -> None:
        queue, changed = self._ways[name]
        again_s = _RESEND_S + 2 * self._half_s if self._random.random() < self._loss else 0.0
        with changed:
            at_s = max(time.monotonic() + self._half_s + again_s, queue[-1][0] if queue else 0.0)
            queue.append((at_s, message))
            changed.notify()

    def _carry(self, name: str, deliver: Callable[[Any], Any]) -> None:
        queue, changed = self._ways[name]
        while True:
            with changed:
                changed.wait_for(lambda: queue)
                at_s, message = queue[0]
            time.sleep(max(0.0, at_s - time.monotonic()))
            deliver(message)
            with changed:
                queue.popleft()


class StepwiseSession(RemoteSession):
    """As published systems do: each round's tree goes up, and its verification comes down."""

    def step(
        self,
        tree: DraftTree,
        sampling: Sampling | None = None,
        grammar: GrammarState | None = None,
    ) -> Future[Step]:
        drafted = wire.Draft(token_ids=tree.token_ids, probs=tree.probs, parents=tree.parents)
        if self._ask is not None:
            self._ask.stepwise = True
            drafted.number = self._ask.number
            self._ask.draft.CopyFrom(drafted)
            return super().step(tree, sampling, grammar)
        drafted.number = self._answer
        future = super().step(tree, sampling, grammar)
        self._send(wire.Up(session=self.number, draft=drafted))
        return future


class StepwiseEngine(RemoteEngine):
    def open(self, window: int, trace: Trace, robot: str = "") -> RemoteSession:
        session = StepwiseSession(self, self.number(), trace)
        with self._lock:
            self._sessions[session.number] = session
        return session


class Said:
    """A recorded event draft."""

    feature: np.ndarray | None = None
    states: tuple[Any, ...] = ()

    def __init__(self, tokens: np.ndarray, probs: np.ndarray) -> None:
        self._said = tuple(map(int, tokens)), tuple(map(float, probs))

    def proposal(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        return self._said


def make_engine(job: Job) -> tuple[Engine, Policy]:
    """The target of a way, and who drafts on the robot."""
    if job.way == APART:
        from crossspec_ros.engine.local import LocalEngine
        from crossspec_ros.models.loading import load_pair
        from crossspec_ros.models.placement import NO_DRAFT
        from crossspec_ros.paths import tiny_models

        pair = load_pair(tiny_models(), draft=NO_DRAFT)
        engine = LocalEngine(pair.target)
        engine.warm_up(2)
        return engine, Policy(make_proposers(("memory", "event_draft")), engine.measure())
    kind = StepwiseEngine if job.way == STEPWISE else RemoteEngine
    address = Address(job.url, job.name, application=job.application)

    def connect(address: Address, *listeners: Any) -> Link:
        return (
            SlowLink(job, address, *listeners) if job.round_trip_s or job.loss else Link(address, *listeners)
        )

    remote = kind(address, _PATIENCE_S, _PATIENCE_S, connect)
    names = ("memory", "event_draft") if job.way == STEPWISE else ("event_draft",)
    return remote, Policy(make_proposers(names), None)


def live(job: Job) -> None:
    """Live through the drive."""
    data = np.load(job.data)
    frames, stamps = data["frames"], data["stamps"]
    question = str(data["question"])
    engine, policy = make_engine(job)
    print(json.dumps({"ready": job.name}), flush=True)
    start_s = float(sys.stdin.readline()) + job.phase_s
    time.sleep(max(0.0, start_s - time.time()))
    began = time.monotonic()
    for k in range(job.windows):
        j = (job.first + k) % len(frames)
        opens = began + k * job.period_s
        if job.period_s and time.monotonic() > opens + job.period_s:
            # A newer window has begun meanwhile.
            print(json.dumps({"window": j, "skipped": True}), flush=True)
            continue
        session = engine.open(k, Trace())
        offsets = (stamps[j] - stamps[j][0]) * (job.period_s / 1e9)
        for frame, stamp, offset in zip(frames[j], stamps[j], offsets, strict=True):
            time.sleep(max(0.0, opens + offset - time.monotonic()))
            if stamp == stamps[j][-1]:
                break
            session.append(frame, int(stamp))
        last = time.monotonic()
        session.fit(list(frames[j]), [int(stamp) for stamp in stamps[j]])
        said = Said(data[f"tokens_{j}"], data[f"probs_{j}"])
        policy.start(k)
        answer = Answer(session, policy, said, Context(question), Trace(), 64, None)
        answer.advance(lambda answer=answer: not answer.ended)  # type: ignore[misc]
        ended = time.monotonic()
        if (lesson := answer.take_lesson()) is not None:
            policy.observe(lesson)
            policy.finish()
        up, down = session.traffic
        row = {
            "window": j,
            "tokens": answer.tokens,
            "passes": answer.passes,
            "last_ms": 1e3 * (ended - last),
            "close_ms": 1e3 * max(0.0, ended - opens - job.period_s) if job.period_s else None,
            "round_trip_ms": 1e3 * answer.round_trip_s,
            "bytes": [up, down],
        }
        print(json.dumps(row), flush=True)
        session.close()
    print(json.dumps({"began": began, "ended": time.monotonic()}), flush=True)
    engine.close()


def job_of(file: Path) -> Job:
    """As `write` wrote it."""
    return Job(**json.loads(file.read_text()))


def write(job: Job, file: Path) -> None:
    """For the process of the robot."""
    file.write_text(json.dumps(asdict(job)))


if __name__ == "__main__":
    live(job_of(Path(sys.argv[1])))
