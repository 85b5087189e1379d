"""Engine for a target on a server: the robot sends frames at once and receives answers in pieces.

The server drafts and verifies. So a window takes one round trip, not one for each pass. The robot needs
neither weights nor a tokenizer.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crossspec_ros.engine.link import Address, Link
from crossspec_ros.engine.protocols import Step
from crossspec_ros.engine.tree import DraftTree
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
    from crossspec_ros.engine.protocols import Answering
    from crossspec_ros.engine.request import Frames


class RemoteTarget:
    """The part of `models.base.VideoTarget` that a robot needs: the sizes in the server's welcome."""

    def __init__(self, url: str, welcome: wire.Welcome) -> None:
        """Raise InputError if a size is missing."""
        sizes = "frames", "frames_per_unit", "image_size", "frame_tokens", "most_tokens"
        # The server detects the end of an answer, so the robot needs no end-of-sequence token.
        self.spec = InputSpec(**{size: getattr(welcome, size) for size in sizes}, eos_ids=())
        self.vocabulary, self.device, self.dtype = welcome.vocabulary, url, "the server's"
        if not all(getattr(self.spec, size) for size in sizes):
            raise InputError(
                f"the server at {url} sent no sizes of a target: check that crossspec serve runs there"
            )

    def prompt_ids(self, question: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return no tokens: the server checks the length of a question."""
        return (), ()


@dataclass(eq=False)
class RemoteWindow:
    """A window on the server. `sent_ns` is the time of the question, `heard_ns` that of the last piece."""

    number: int
    sent: set[tuple[int, int]] = field(default_factory=set)
    """Sent frames by connection and stamp, because the server drops frames when a connection ends."""
    answer: Answering | None = None
    answer_number: int = 0
    passes: int = 0
    sent_ns: int = 0
    heard_ns: int = 0
    traffic: tuple[int, int] = (0, 0)


class RemoteEngine:
    """`protocols.Engine` on a server.

    An answer fails if no piece arrives within `patience_s`, or if the connection breaks.
    """

    supports_grammar = supports_scores = False

    def __init__(
        self, address: Address, patience_s: float, connect_s: float, connect: Callable[..., Link] = Link
    ) -> None:
        """Raise LinkError if the server is not reached within `connect_s`."""
        self.url, self.patience_s = address.url, patience_s
        self._windows: dict[int, RemoteWindow] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self.counts = {"lost_links": 0, "late_passes": 0}
        self._ending = threading.Event()
        self.link = connect(address, self._take, self._lost)
        if not self.link.up.wait(connect_s):
            trouble = self.link.trouble
            self.link.close()
            raise LinkError(trouble)
        self.pulse = Pulse("link watch")
        self.pulses: tuple[Pulse, ...] = (self.link.pulse, self.pulse)
        self._watch = self.pulse.start(self._watch_time, "link watch")

    def tap(self, layers: Sequence[int]) -> None:
        assert not layers, "hidden states stay on the server"

    def warm_up(self, windows: int) -> None:
        """Do nothing, because the server is warm."""

    def measure(self) -> PassCost | None:
        """Return None, because the server chooses the trees."""
        return None

    def open(
        self, window: int, trace: Trace, robot: str = "", plan: Callable[[], Answering | None] = lambda: None
    ) -> RemoteWindow:
        opened = RemoteWindow(next(self._numbers))
        self._windows[opened.number] = opened
        return opened

    def add_frame(self, window: RemoteWindow, frame: np.ndarray, stamp_ns: int) -> Future[None]:
        # If the connection is down, `ask` sends the frame again later.
        self._send_frame(window, frame, stamp_ns)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def ask(self, window: RemoteWindow, answer: Answering, frames: Frames) -> Future[None]:
        ask = wire.Ask(
            number=next(self._numbers),
            question=answer.question,
            max_new_tokens=answer.max_new_tokens,
            hint=answer.hint[:MAX_HINT],
            stamps_ns=frames[1],
        )
        if (sampling := answer.sampling) is not None:
            ask.temperature, ask.top_p, ask.seed = sampling.temperature, sampling.top_p, sampling.seed
        for frame, stamp_ns in zip(*frames, strict=True):
            self._send_frame(window, frame, stamp_ns)
        with self._lock:
            window.sent_ns = window.heard_ns = time.perf_counter_ns()
            before, window.answer = window.answer, answer
            window.passes, window.answer_number = 0, ask.number
            is_open = window.number in self._windows
            is_sent = self._send(window, wire.Up(ask=ask))
        if before is not None:
            before.future.set_exception(CancelledError())
        if not is_open:
            self.cancel(window)
        elif not is_sent:
            trouble = self.link.trouble or "the queue to the target's server is full"
            self._end(window, answer, LinkError(trouble))
        return answer.future

    def score(
        self, window: RemoteWindow, tree: DraftTree, trace: Trace, frames: Frames, can_wait: bool = False
    ) -> Future[tuple[float, ...]]:
        raise AssertionError("a remote engine does not score")

    def cancel(self, window: RemoteWindow) -> None:
        self._end(window, window.answer, CancelledError(), is_cut=True)

    def drop(self, window: RemoteWindow) -> None:
        with self._lock:
            self._send(window, wire.Up(close=wire.Close()))
            self._windows.pop(window.number, None)
        self.cancel(window)

    def close(self) -> None:
        self.pulse.end()
        self._ending.set()
        self._watch.join()
        self.link.close()
        self._fail(LinkError("this node is shutting down"))

    def _take(self, message: wire.Down) -> None:
        """Handle a piece or a refusal in the link's thread, unless it is for an earlier answer."""
        now_ns, kind = time.perf_counter_ns(), message.WhichOneof("what")
        if kind not in ("piece", "refused"):
            return
        piece, number = message.piece, getattr(message, kind).number
        with self._lock:
            window = self._windows.get(message.session)
            if window is None:
                return
            answer, passes = window.answer, window.passes
            window.traffic = window.traffic[0], window.traffic[1] + message.ByteSize()
            if answer is None or number not in (0, window.answer_number):
                return
            window.passes, window.heard_ns = passes + 1, now_ns
        if kind == "refused":
            self._end(window, answer, _error(message.refused))
            return
        step = Step(
            (),
            tuple(piece.token_ids),
            piece.ended,
            piece.tokens_read,
            piece.seconds,
            rows=piece.rows,
            most_read=piece.most_read,
            drafted=dict(piece.drafted),
            accepted=dict(piece.accepted),
            round_trip_s=max(0.0, (now_ns - window.sent_ns) / 1e9 - piece.since_asked_s),
            traffic=window.traffic,
            passes=piece.passes,
            text=piece.text,
        )
        try:
            name = f"verify[{passes}]" if passes else "target_prefill"
            answer.trace.add(name, now_ns - round(piece.seconds * 1e9), now_ns)
            if not answer.take(DraftTree(), step):
                self._end(window, answer, None, is_cut=not piece.ended)
        except BaseException as error:  # the link's thread must survive
            self._end(window, answer, error, is_cut=True)

    def _end(
        self,
        window: RemoteWindow,
        answer: Answering | None,
        error: BaseException | None,
        is_cut: bool = False,
    ) -> None:
        """End this answer, unless it has ended. If it `is_cut`, cancel it on the server, too."""
        with self._lock:
            if answer is None or window.answer is not answer:
                return
            window.answer = None
            if is_cut:
                self._send(window, wire.Up(cancel=wire.Cancel()))
        if error is None:
            answer.future.set_result(None)
            answer.learn()
        else:
            answer.future.set_exception(error)

    def _lost(self, reason: str) -> None:
        self.counts["lost_links"] += 1
        self._fail(LinkError(reason))

    def _fail(self, error: LinkError) -> None:
        for window in list(self._windows.values()):
            self._end(window, window.answer, error)

    def _watch_time(self) -> None:
        while not self._ending.wait(0.02):
            with self.pulse.busy():
                late_ns = time.perf_counter_ns() - round(self.patience_s * 1e9)
                for window in list(self._windows.values()):
                    answer = window.answer
                    if answer is not None and window.heard_ns < late_ns:
                        self.counts["late_passes"] += 1
                        late = f"the target's server has not answered for {self.patience_s:g} s"
                        self._end(window, answer, LinkError(late), is_cut=True)
                self.link.check()

    def _send_frame(self, window: RemoteWindow, frame: Any, stamp_ns: int) -> None:
        """Send a frame unless the server has it."""
        if (self.link.epoch, stamp_ns) in window.sent:
            return
        message = wire.Up(frame=frame_message(frame, stamp_ns))
        with self._lock:
            key = self.link.epoch, stamp_ns
            if key not in window.sent and self._send(window, message):
                window.sent.add(key)

    def _send(self, window: RemoteWindow, message: wire.Up) -> bool:
        """Send a message of an open window, under the lock; return whether the link accepted it."""
        message.session = window.number
        # A message of a closed window would open a window on the server that is never closed.
        if window.number not in self._windows or not self.link.send(message):
            return False
        window.traffic = window.traffic[0] + message.ByteSize(), window.traffic[1]
        return True


def _error(refused: wire.Refused) -> InputError:
    if refused.kind == wire.Refused.NOT_FINITE:
        return NonFiniteError()
    if refused.kind == wire.Refused.QUESTION:
        return InputError(refused.sentence)
    return LinkError(f"the target's server refused: {refused.sentence}")
