"""The target on another host: frames go up as they come, and each pass of an answer comes down by itself.

The server verifies to the end once it has been asked, with a memory of its own and the event draft's words as
a hint. So the round trip is paid once for each window, not once for each pass.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from crossspec_ros.engine.link import Address, Link, OnLost, OnMessage
from crossspec_ros.engine.session import Proposed, Step
from crossspec_ros.engine.tree import DraftTree, follow
from crossspec_ros.errors import InputError, LinkError
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.wire import captions_pb2 as wire
from crossspec_ros.wire.packed_frames import frame_message

if TYPE_CHECKING:
    import torch

    from crossspec_ros.engine.json_grammar import GrammarState
    from crossspec_ros.engine.pass_cost import PassCost
    from crossspec_ros.engine.sampling import Sampling

_MOST_COUNT = 1 << 20
"""Largest count in a piece: sums over an answer must fit into the messages that report them."""
_MOST_S = 86_400.0
"""Longest time in a piece."""
_NAME = re.compile("[a-z0-9_]{1,32}")
"""Form of a proposer's name, which logs and figures repeat."""
_MOST_NAMES = 32
"""Proposers of a server that are told apart."""


class RemoteEngine:
    """See `session.Engine`. A pass that does not come within `patience_s` fails, as does all that was under
    way when the link broke."""

    def __init__(
        self,
        address: Address,
        patience_s: float,
        connect_s: float,
        connect: Callable[[Address, OnMessage, OnLost], Link] = Link,
    ) -> None:
        """Raises InputError where the server is not reached within `connect_s`."""
        self.url, self.patience_s = address.url, patience_s
        self._sessions: dict[int, RemoteSession] = {}
        self._lock = threading.Lock()
        self._numbers = 0
        self._proposers: set[str] = set()
        self.counts = {"lost_links": 0, "late_passes": 0}
        self.link = connect(address, self._take, self._lost)
        if not self.link.wait(connect_s):
            trouble = self.link.trouble
            if not self.link.is_refused:
                trouble += ": start one there with crossspec serve, or correct the address"
            self.link.close()
            raise InputError(trouble)
        assert self.link.welcome is not None
        self.welcome = self.link.welcome
        self._ending = threading.Event()
        self.pulse = Pulse("link watch")
        self._watch = self.pulse.start(self._expire, "link watch")

    @property
    def pulses(self) -> tuple[Pulse, ...]:
        return self.link.pulse, self.pulse

    @property
    def masks(self) -> bool:
        return False

    @property
    def scores(self) -> bool:
        return False

    @property
    def rehearses(self) -> bool:
        # The server does, when it is idle.
        return False

    def open(self, window: int, trace: Trace, robot: str = "") -> RemoteSession:
        session = RemoteSession(self, self.number(), trace)
        with self._lock:
            self._sessions[session.number] = session
        return session

    def tap(self, layers: Sequence[int]) -> None:
        if layers:
            raise InputError(
                "draft heads read the target's states, which stay on its server: set heads to none"
            )

    def warm_up(self, sessions: int) -> None:
        """The server is warm."""

    def measure(self) -> PassCost | None:
        """Nothing: the server decides what it verifies."""
        return None

    def close(self) -> None:
        self.pulse.end()
        self._ending.set()
        self._watch.join()
        self.link.close()
        self._lost("this node ends")

    def number(self) -> int:
        """One that no session or answer has had."""
        with self._lock:
            self._numbers += 1
            return self._numbers

    def forget(self, session: RemoteSession) -> None:
        """Drop a closed session."""
        with self._lock:
            self._sessions.pop(session.number, None)

    def by_proposer(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Counts of a piece whose names can be a proposer's; for the link's thread."""
        for name in counts:
            if len(self._proposers) < _MOST_NAMES and _NAME.fullmatch(name):
                self._proposers.add(name)
        return {name: count for name, count in counts.items() if name in self._proposers}

    def _take(self, message: wire.Down) -> None:
        with self._lock:
            session = self._sessions.get(message.session)
        if session is None:
            return
        if message.WhichOneof("what") == "piece":
            session.take(message.piece)
        elif message.WhichOneof("what") == "refused":
            session.fail(
                LinkError(f"the target's server refused: {message.refused.sentence}"), message.refused.number
            )

    def _lost(self, reason: str) -> None:
        self.counts["lost_links"] += 1
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            session.fail(LinkError(reason))

    def _expire(self) -> None:
        while not self._ending.wait(0.02):
            with self.pulse.busy():
                with self._lock:
                    late = [one for one in self._sessions.values() if one.is_late(self.patience_s)]
                for session in late:
                    self.counts["late_passes"] += 1
                    session.fail(LinkError(f"the target's server has not answered for {self.patience_s:g} s"))
                self.link.give_up()


class RemoteSession:
    """See `session.Session`."""

    branches = True

    def __init__(self, engine: RemoteEngine, number: int, trace: Trace) -> None:
        self._engine, self.number, self._trace = engine, number, trace
        self._epoch = 0
        self._sent: set[int] = set()
        self._lock = threading.Lock()
        self._ask: wire.Ask | None = None
        # The answer, and how many tokens of it may still come.
        self._answer = self._left = 0
        self._pieces: deque[Step] = deque()
        self._waiting: Future[Step] | None = None
        self._tree = DraftTree()
        self._asked_ns = self._since_ns = 0
        self._passes = 0
        self._error: LinkError | None = None
        self._sent_bytes, self._received_bytes = 0, 0
        self._is_closed = False

    @property
    def traffic(self) -> tuple[int, int]:
        return self._sent_bytes, self._received_bytes

    @property
    def frames(self) -> tuple[torch.Tensor, ...]:
        return ()

    def append(self, frame: np.ndarray, stamp_ns: int) -> Future[None]:
        # Where there is no link, it is sent with `fit`, if there is one by then.
        self._send_frame(frame, stamp_ns)
        return _done()

    def fit(self, frames: Sequence[np.ndarray | torch.Tensor], stamps_ns: Sequence[int]) -> Future[None]:
        self._error = None
        for frame, stamp_ns in zip(frames, stamps_ns, strict=True):
            if not isinstance(frame, np.ndarray):
                raise InputError(
                    "event features cannot stand in for frames on another host: set handoff to off"
                )
            if self._epoch != self._engine.link.epoch or stamp_ns not in self._sent:
                self._send_frame(frame, stamp_ns)
        self._send(wire.Up(session=self.number, fit=wire.Fit(stamps_ns=stamps_ns)))
        return _done()

    def ask(self, question: str, trace: Trace, max_new_tokens: int) -> int:
        with self._lock:
            self._trace, self._answer = trace, self._engine.number()
            self._ask = wire.Ask(number=self._answer, question=question, max_new_tokens=max_new_tokens)
            self._pieces.clear()
            self._waiting, self._passes, self._left = None, 0, max_new_tokens
        return 0

    def step(
        self,
        tree: DraftTree,
        sampling: Sampling | None = None,
        grammar: GrammarState | None = None,
    ) -> Future[Step]:
        assert grammar is None, "it has no masks"
        future: Future[Step] = Future()
        with self._lock:
            ask, self._ask = self._ask, None
            self._since_ns = time.perf_counter_ns()
            if ask is not None:
                self._asked_ns = self._since_ns
            self._waiting, self._tree = future, tree
        if ask is not None:
            if sampling is not None:
                ask.temperature, ask.top_p, ask.seed = sampling.temperature, sampling.top_p, sampling.seed
            if not ask.stepwise:
                ask.draft.token_ids.extend(tree.token_ids)
                ask.draft.probs.extend(tree.probs)
            self._send(wire.Up(session=self.number, ask=ask))
        if self._error is not None:
            self.fail(self._error)
        else:
            self._give()
        return future

    def rehearse(self, question: str, trace: Trace) -> int:
        raise AssertionError("the server rehearses by itself")

    def score(self, tree: DraftTree, trace: Trace) -> Future[tuple[float, ...]]:
        raise AssertionError("it does not score")

    def rest(self) -> None:
        """The server rests by itself."""

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._send(wire.Up(session=self.number, close=wire.Close()))
            self._engine.forget(self)
            # Whoever waits is in the way of the next window.
            self.fail(LinkError("the window was dropped while the target's server had it"))

    def take(self, piece: wire.Piece) -> None:
        """Take tokens of a pass; those of an answer nobody waits for any more are dropped."""
        now_ns, tokens = time.perf_counter_ns(), len(piece.token_ids)
        with self._lock:
            self._received_bytes += piece.ByteSize()
            if piece.number != self._answer or not self._left:
                return
            # Else pieces without tokens could come for ever.
            is_sound = tokens <= self._left and (tokens > 0 or piece.ended) and _has_sound_figures(piece)
            self._left = self._left - tokens if is_sound and not piece.ended else 0
            if is_sound:
                self._pieces.append(self._told(piece, now_ns))
        if is_sound:
            self._give()
        else:
            self.fail(
                LinkError(
                    f"the target's server sent {tokens} tokens as a piece of an answer, none or more than "
                    f"were asked for, or absurd figures with them: check that it is crossspec serve"
                ),
                piece.number,
            )

    def _told(self, piece: wire.Piece, now_ns: int) -> Step:
        round_trip_s = max(0.0, (now_ns - self._asked_ns) / 1e9 - piece.since_asked_s)
        name = f"verify[{self._passes}]" if self._passes else "target_prefill"
        self._trace.add(name, now_ns - round(piece.seconds * 1e9), now_ns)
        self._passes += 1
        return Step(
            (),
            tuple(piece.token_ids),
            piece.ended,
            piece.tokens_read,
            piece.seconds,
            rows=piece.rows,
            most_read=piece.most_read,
            proposed=Proposed(
                self._engine.by_proposer(piece.drafted), self._engine.by_proposer(piece.accepted)
            ),
            round_trip_s=round_trip_s,
            passes=piece.passes,
        )

    def fail(self, error: LinkError, number: int = 0) -> None:
        """There will be no more pieces; of one answer alone where it has a number."""
        with self._lock:
            if number and number != self._answer:
                return
            self._error = error
            future, self._waiting = self._waiting, None
        if future is not None:
            future.set_exception(error)

    def is_late(self, patience_s: float) -> bool:
        """Whether somebody has waited for a pass longer than this."""
        return self._waiting is not None and time.perf_counter_ns() - self._since_ns > patience_s * 1e9

    def _give(self) -> None:
        with self._lock:
            if self._waiting is None or not self._pieces:
                return
            future, self._waiting = self._waiting, None
            step, tree = self._pieces.popleft(), self._tree
        said = iter((*step.tokens, -1))
        path, _ = follow(tree, lambda node: next(said))
        future.set_result(replace(step, path=path))

    def _send_frame(self, frame: np.ndarray, stamp_ns: int) -> None:
        if self._epoch != self._engine.link.epoch:
            self._epoch = self._engine.link.epoch
            self._sent.clear()
        if self._send(wire.Up(session=self.number, frame=frame_message(frame, stamp_ns))):
            self._sent.add(stamp_ns)

    def _send(self, message: wire.Up) -> bool:
        sent = self._engine.link.send(message)
        if sent:
            self._sent_bytes += message.ByteSize()
        elif not self._is_closed and message.WhichOneof("what") != "frame":
            trouble = self._engine.link.trouble or "more waits for the link than it carries"
            self._error = LinkError(trouble)
        return sent


def _has_sound_figures(piece: wire.Piece) -> bool:
    counts = (piece.tokens_read, piece.rows, piece.most_read, piece.passes)
    by_proposer = (*piece.drafted.values(), *piece.accepted.values())
    times = (piece.seconds, piece.since_asked_s)
    return max(*counts, *by_proposer) <= _MOST_COUNT and all(0 <= time <= _MOST_S for time in times)


def _done() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(None)
    return future
