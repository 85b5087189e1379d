"""Target on another host: frames go up as they come, and the server sends an answer piece by piece.

The server drafts and verifies by itself. So a window costs one round trip, not one for each pass, and the
robot needs neither weights nor a tokenizer.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from crossspec_ros.engine.link import Address, Link
from crossspec_ros.engine.session import Proposed, Step
from crossspec_ros.errors import InputError, LinkError, NonFiniteError
from crossspec_ros.models.base import InputSpec
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.wire import MAX_HINT
from crossspec_ros.wire import captions_pb2 as wire
from crossspec_ros.wire.packed_frames import frame_message

if TYPE_CHECKING:
    import numpy as np

    from crossspec_ros.engine.pass_cost import PassCost
    from crossspec_ros.engine.sampling import Sampling
    from crossspec_ros.engine.tree import DraftTree


class RemoteTarget:
    """The part of `models.base.VideoTarget` that a robot needs: the sizes in a server's welcome."""

    def __init__(self, url: str, welcome: wire.Welcome) -> None:
        """Raise InputError for sizes that no target has."""
        sizes = "frames", "frames_per_unit", "image_size", "frame_tokens", "most_tokens"
        # The server ends answers, so that no end-of-sequence token is needed here.
        self.spec = InputSpec(**{size: getattr(welcome, size) for size in sizes}, eos_ids=())
        self.vocabulary, self.device, self.dtype = welcome.vocabulary, url, "the server's"
        if not all(getattr(self.spec, size) for size in sizes):
            raise InputError(f"the server at {url} sends no sizes of a target: is it crossspec serve?")

    def prompt_ids(self, question: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return no tokens: the server checks the length of a question."""
        return (), ()


class RemoteEngine:
    """See `session.Engine`. An answer fails if no piece comes within `patience_s`, or if the link breaks."""

    masks = scores = False
    # The server rehearses by itself.
    rehearses = False

    def __init__(
        self, address: Address, patience_s: float, connect_s: float, connect: Callable[..., Link] = Link
    ) -> None:
        """Raise InputError if the server is not reached within `connect_s`."""
        self.url, self.patience_s = address.url, patience_s
        self.sessions: dict[int, RemoteSession] = {}
        self.numbers = itertools.count(1)
        self.counts = {"lost_links": 0, "late_passes": 0}
        self._ending = threading.Event()
        self.link = connect(address, self._take, self._lost)
        if not self.link.wait(connect_s):
            trouble = self.link.trouble
            self.link.close()
            raise InputError(trouble)
        self.pulse = Pulse("link watch")
        self._watch = self.pulse.start(self._watch_time, "link watch")

    @property
    def pulses(self) -> tuple[Pulse, ...]:
        return self.link.pulse, self.pulse

    def open(self, window: int, trace: Trace, robot: str = "") -> RemoteSession:
        number = next(self.numbers)
        self.sessions[number] = session = RemoteSession(self, number, trace)
        return session

    def tap(self, layers: Sequence[int]) -> None:
        assert not layers, "hidden states stay on the server"

    def warm_up(self, sessions: int) -> None:
        """The server is warm."""

    def measure(self) -> PassCost | None:
        """Return no cost: the server decides what it verifies."""
        return None

    def close(self) -> None:
        self.pulse.end()
        self._ending.set()
        self._watch.join()
        self.link.close()
        self._fail(LinkError("this node ends"))

    def _take(self, message: wire.Down) -> None:
        session = self.sessions.get(message.session)
        if session is None:
            return
        if message.WhichOneof("what") == "piece":
            session.take(message.piece)
        elif message.WhichOneof("what") == "refused":
            session.fail(_error(message.refused), message.refused.number)

    def _lost(self, reason: str) -> None:
        self.counts["lost_links"] += 1
        self._fail(LinkError(reason))

    def _fail(self, error: LinkError) -> None:
        for session in list(self.sessions.values()):
            session.fail(error)

    def _watch_time(self) -> None:
        while not self._ending.wait(0.02):
            with self.pulse.busy():
                for session in list(self.sessions.values()):
                    if session.waits_s > self.patience_s:
                        self.counts["late_passes"] += 1
                        late = f"the target's server has not answered for {self.patience_s:g} s"
                        session.fail(LinkError(late))
                self.link.check()


class RemoteSession:
    """See `session.Session`."""

    branches = True
    frames = ()

    def __init__(self, engine: RemoteEngine, number: int, trace: Trace) -> None:
        self._engine, self._link, self.number, self._trace = engine, engine.link, number, trace
        self._sent: set[tuple[int, int]] = set()
        self._lock = threading.Lock()
        self._ask: wire.Ask | None = None
        # The number of the answer, and how many tokens of it may still come.
        self._answer = self._left = 0
        self._pieces: deque[Step] = deque()
        self._waiting: Future[Step] | None = None
        self._asked_ns = self._since_ns = self._passes = 0
        self._error: InputError | None = None
        self.traffic = 0, 0

    @property
    def waits_s(self) -> float:
        """Seconds for which a step has waited for its piece."""
        return (time.perf_counter_ns() - self._since_ns) / 1e9 if self._waiting is not None else 0.0

    def append(self, frame: np.ndarray, stamp_ns: int) -> Future[None]:
        # Without a link, `fit` sends the frame once there is one.
        self._send_frame(frame, stamp_ns)
        return _done()

    def fit(self, frames: Sequence[Any], stamps_ns: Sequence[int]) -> Future[None]:
        self._error = None
        for frame, stamp_ns in zip(frames, stamps_ns, strict=True):
            self._send_frame(frame, stamp_ns)
        self._send(wire.Up(fit=wire.Fit(stamps_ns=stamps_ns)))
        return _done()

    def ask(self, question: str, trace: Trace, max_new_tokens: int, hint: str = "") -> int:
        if type(self._error) is InputError:
            # It refused the question before.
            self._error = None
        with self._lock:
            self._trace, self._answer, self._left = trace, next(self._engine.numbers), max_new_tokens
            self._ask = wire.Ask(
                number=self._answer, question=question, max_new_tokens=max_new_tokens, hint=hint[:MAX_HINT]
            )
            self._pieces.clear()
            self._waiting, self._passes = None, 0
        return 0

    def step(
        self, tree: DraftTree, sampling: Sampling | None = None, grammar: object | None = None
    ) -> Future[Step]:
        future: Future[Step] = Future()
        with self._lock:
            ask, self._ask = self._ask, None
            self._waiting, self._since_ns = future, time.perf_counter_ns()
        if ask is not None:
            self._asked_ns = self._since_ns
            if sampling is not None:
                ask.temperature, ask.top_p, ask.seed = sampling.temperature, sampling.top_p, sampling.seed
            self._send(wire.Up(ask=ask))
        if self._error is not None:
            self.fail(self._error)
        self._give()
        return future

    def rehearse(self, question: str, trace: Trace) -> int:
        raise AssertionError("the server rehearses by itself")

    def stop_rehearsal(self) -> None:
        """The server stops its own."""

    def score(self, tree: DraftTree, trace: Trace) -> Future[tuple[float, ...]]:
        raise AssertionError("it does not score")

    def rest(self) -> None:
        """The server rests by itself."""

    def close(self) -> None:
        if self._engine.sessions.pop(self.number, None) is not None:
            self._send(wire.Up(close=wire.Close()))
            self.fail(LinkError("the window was dropped while the target's server had it"))

    def take(self, piece: wire.Piece) -> None:
        """Take tokens of a pass; those of an earlier answer are dropped."""
        now_ns, count = time.perf_counter_ns(), len(piece.token_ids)
        with self._lock:
            up, down = self.traffic
            self.traffic = up, down + piece.ByteSize()
            if piece.number != self._answer or not self._left:
                return
            # Without this check an answer may never end.
            is_valid = count <= self._left and (count > 0 or piece.ended)
            self._left = self._left - count if is_valid and not piece.ended else 0
            if is_valid:
                self._pieces.append(self._step(piece, now_ns))
        if not is_valid:
            self.fail(LinkError(f"the target's server sent a piece of {count} tokens, which is invalid"))
        self._give()

    def _step(self, piece: wire.Piece, now_ns: int) -> Step:
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
            proposed=Proposed(dict(piece.drafted), dict(piece.accepted)),
            round_trip_s=max(0.0, (now_ns - self._asked_ns) / 1e9 - piece.since_asked_s),
            passes=piece.passes,
            text=piece.text,
        )

    def fail(self, error: InputError, number: int = 0) -> None:
        """Fail the answer of this `number`, or whatever answer there is."""
        with self._lock:
            if number not in (0, self._answer):
                return
            self._error = error
            future, self._waiting = self._waiting, None
        if future is not None:
            future.set_exception(error)

    def _give(self) -> None:
        with self._lock:
            if self._waiting is None or not self._pieces:
                return
            future, self._waiting = self._waiting, None
            step = self._pieces.popleft()
        future.set_result(step)

    def _send_frame(self, frame: np.ndarray, stamp_ns: int) -> None:
        # A server knows the frames of one stream.
        key = self._link.epoch, stamp_ns
        if key not in self._sent and self._send(wire.Up(frame=frame_message(frame, stamp_ns))):
            self._sent.add(key)

    def _send(self, message: wire.Up) -> bool:
        message.session = self.number
        if self._link.send(message):
            up, down = self.traffic
            self.traffic = up + message.ByteSize(), down
            return True
        if message.WhichOneof("what") != "frame":
            self._error = LinkError(self._link.trouble or "more waits for the link than it carries")
        return False


def _error(refused: wire.Refused) -> InputError:
    if refused.kind == wire.Refused.NOT_FINITE:
        return NonFiniteError()
    if refused.kind == wire.Refused.QUESTION:
        return InputError(refused.sentence)
    return LinkError(f"the target's server refused: {refused.sentence}")


def _done() -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None)
    return future
