"""One robot's stream: its messages become work of sessions, and the passes of an answer go back as pieces."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from functools import partial

import numpy as np

from crossspec_ros.captioning.answer import Answer, Drafted
from crossspec_ros.captioning.caption import Rehearsal
from crossspec_ros.engine.request import Request
from crossspec_ros.errors import InputError, NonFiniteError, forget_frames
from crossspec_ros.serving.fleet import SESSIONS, TURN_S, Fleet, Robot
from crossspec_ros.serving.pieces import Pieces
from crossspec_ros.serving.robot_asks import (
    Hint,
    QuestionError,
    asked_context,
    asked_sampling,
    check_question,
)
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.wire import VERSION
from crossspec_ros.wire import captions_pb2 as wire
from crossspec_ros.wire.packed_frames import read_frame

MOST_PIXELS = 2_500_000
"""Largest frame: full HD has 2.1 million. The target's thread, which all robots share, resizes it."""
MOST_PIXELS_HELD = 60_000_000
"""Pixels of a robot's frames: three windows of eight full-HD frames have 50 million."""
_KINDS: dict[type[BaseException], wire.Refused.Kind] = {
    QuestionError: wire.Refused.QUESTION,
    NonFiniteError: wire.Refused.NOT_FINITE,
}


class _Window:
    """Window of a robot: its frames by stamp, the stamps that it is asked about, and what was drafted."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.handle: Request | None = None
        self.frames: dict[int, np.ndarray] = {}
        self.stamps_ns: list[int] = []
        self.draft: Drafted | None = None
        self.rehearsal = Rehearsal()
        self.was_asked = False


class RobotStream:
    """Takes a robot's messages in order, one at a time, and gives the server's to `send` from any thread.

    The last one is None. `take` waits for the target only while buffers of closed windows come back.
    """

    def __init__(self, fleet: Fleet, send: Callable[[wire.Down | None], None]) -> None:
        self._fleet, self._send = fleet, send
        self._robot: Robot | None = None
        # The question about the robot's last window, with which the next one is rehearsed.
        self._asked: wire.Ask | None = None
        self._windows: OrderedDict[int, _Window] = OrderedDict()
        self._closing: list[Future[None]] = []
        self._is_over = False

    def take(self, message: wire.Up) -> None:
        """Do what the message asks for; refuse an invalid one with a sentence.

        Raises:
            InputError: the robot is not admitted, and the stream must end.
        """
        if self._is_over:
            return
        kind = message.WhichOneof("what")
        if self._robot is None:
            if kind != "hello":
                raise InputError("the stream did not begin with a hello: connect with crossspec's captioner")
            self._admit(message.hello)
            return
        self._robot.heard_s = time.monotonic()
        try:
            match kind:
                case "frame":
                    self._take_frame(message.session, message.frame)
                case "fit":
                    self._fit(message.session, message.fit)
                case "ask":
                    self._ask(message.session, message.ask)
                case "close":
                    self._close(message.session)
                case _:
                    raise InputError(f"a message says '{kind}' once more: send what captions.proto says")
        except InputError as error:
            self._fleet.counts["refused_messages"] += 1
            number = message.ask.number if kind == "ask" else 0
            self._refuse(message.session, number, error)

    def stop(self) -> None:
        """Take no further messages; any thread may call this."""
        self._is_over = True

    def end(self) -> None:
        """Give everything back after the last message."""
        self._is_over = True
        for index in list(self._windows):
            self._close(index)
        self._await_closed(0)
        robot, self._robot = self._robot, None
        if robot is not None:
            self._fleet.leave(robot)
        # The function holds this stream, and messages that the robot did not read.
        self._send = lambda message: None

    def _admit(self, hello: wire.Hello) -> None:
        if hello.version != VERSION:
            raise InputError(
                f"the robot speaks version {hello.version} of the protocol and the server {VERSION}: install "
                f"the same crossspec_ros on both"
            )
        fleet = self._fleet
        self._robot = robot = fleet.admit(hello.robot, hello.period_ns, hello.phase_ns, self._let_go)
        spec = fleet.target.spec
        sizes = "frames", "frames_per_unit", "image_size", "frame_tokens", "most_tokens"
        welcome = wire.Welcome(
            **{name: getattr(spec, name) for name in sizes},
            vocabulary=fleet.target.vocabulary,
            phase_ns=fleet.emptiest_phase(hello.period_ns, robot),
        )
        self._send_down(wire.Down(welcome=welcome))

    def _let_go(self, reason: str) -> None:
        self._refuse(0, 0, InputError(reason))
        self._is_over = True
        self._send(None)

    def _take_frame(self, index: int, message: wire.Frame) -> None:
        window = self._window(index)
        held = sum(frame.nbytes for one in self._windows.values() for frame in one.frames.values())
        pixels = message.height * message.width
        if pixels > MOST_PIXELS or held + 3 * pixels > 3 * MOST_PIXELS_HELD:
            raise InputError(
                f"a frame of {message.width}x{message.height} is more than is held of a robot: let the "
                f"synchronizer send smaller ones (frame_size)"
            )
        frame = read_frame(message)
        if message.stamp_ns in window.frames:
            raise InputError(
                f"window {index} has a frame of stamp {message.stamp_ns} already: send each once"
            )
        if len(window.frames) >= self._fleet.target.spec.frames:
            raise InputError(
                f"window {index} has {len(window.frames)} frames, as many as the target takes: send no more"
            )
        window.frames[message.stamp_ns] = frame
        if not window.was_asked and list(window.frames) == sorted(window.frames):
            self._fleet.engine.add_frame(self._handle(window), frame, message.stamp_ns)

    def _fit(self, index: int, fit: wire.Fit) -> None:
        window = self._window(index)
        # Lists are measured before they are copied: one message may hold millions.
        if len(fit.stamps_ns) > self._fleet.target.spec.frames:
            raise InputError(
                f"window {index} is asked about with {len(fit.stamps_ns)} frames, more than the target "
                f"takes: send {self._fleet.target.spec.frames} at most"
            )
        stamps_ns = list(fit.stamps_ns)
        missing = [stamp for stamp in stamps_ns if stamp not in window.frames]
        if missing or not stamps_ns:
            raise InputError(
                f"window {index} lacks the frames of {len(missing)} stamps, of {len(stamps_ns)} asked for: "
                f"send frames before they are asked about"
            )
        self._fleet.engine.cancel(self._handle(window))
        window.stamps_ns = stamps_ns

    def _ask(self, index: int, ask: wire.Ask) -> None:
        window = self._window(index)
        if not window.frames:
            raise InputError(f"window {index} has no frames: send them before a question")
        fleet, robot = self._fleet, self._robot
        assert robot is not None
        check_question(ask, fleet.target)
        handle = self._handle(window)
        fleet.engine.cancel(handle)
        begun_ns = time.perf_counter_ns()
        if not window.was_asked:
            # Further questions about a window are not those of the next one.
            self._asked, window.was_asked = ask, True
        window.draft = Hint.of(ask, fleet.target)
        ours = window, asked_context(ask, fleet.target), robot.policy, Trace(), ask.max_new_tokens
        answer = Answer(*ours, asked_sampling(ask))
        pieces = Pieces(index, ask.number, answer, fleet.target.tokenizer.decode, begun_ns, self._send_down)
        answer.on_step = pieces
        answer.future.add_done_callback(lambda over: self._ended(window, pieces, over))
        stamps_ns = window.stamps_ns or sorted(window.frames)
        fleet.engine.ask(handle, answer, ([window.frames[stamp] for stamp in stamps_ns], stamps_ns))

    def _rehearsal(self, window: _Window) -> Answer | None:
        """Return what an open window is rehearsed with, in the engine's thread."""
        robot, ask, target = self._robot, self._asked, self._fleet.target
        if robot is None or ask is None or window.was_asked or self._is_over:
            return None
        ours = window, asked_context(ask, target), robot.policy, Trace(), ask.max_new_tokens

        def keep(answer: Answer) -> None:
            window.rehearsal = answer.rehearsal(window.rehearsal)

        return Answer(*ours, on_rehearsed=keep)

    def _ended(self, window: _Window, pieces: Pieces, over: Future[None]) -> None:
        """Send the end; mostly the engine's thread calls this."""
        error = over.exception()
        if error is None:
            window.rehearsal = Rehearsal()
            self._fleet.counts["answers"] += 1
            self._fleet.on_answer(pieces.seconds)
        # A robot that asks anew or has closed the window does not wait for this one.
        elif not isinstance(error, CancelledError):
            self._fleet.counts["failed_answers"] += 1
            self._refuse(window.index, pieces.number, error)
            forget_frames(error)

    def _window(self, index: int) -> _Window:
        """Return the window of this index, or a new one; close the oldest if there are too many."""
        assert self._robot is not None
        if index not in self._windows:
            while len(self._windows) >= SESSIONS:
                self._close(next(iter(self._windows)))
            self._await_closed(SESSIONS)
            if len(self._closing) > SESSIONS:
                raise InputError(f"earlier windows have not ended within {TURN_S:g} s: send fewer of them")
            self._windows[index] = _Window(index)
        return self._windows[index]

    def _handle(self, window: _Window) -> Request:
        """Return the engine's handle on a window."""
        if window.handle is None:
            assert self._robot is not None
            plan = partial(self._rehearsal, window)
            window.handle = self._fleet.engine.open(window.index, Trace(), self._robot.name, plan)
        return window.handle

    def _close(self, index: int) -> None:
        window = self._windows.pop(index, None)
        if window is not None and window.handle is not None:
            self._closing.append(self._fleet.engine.drop(window.handle))

    def _await_closed(self, most: int) -> None:
        """Wait until at most `most` closed windows have work in flight, which keeps frames and buffers.

        Give up after `TURN_S`.
        """
        until_s = time.monotonic() + TURN_S
        while True:
            self._closing = [one for one in self._closing if not one.done()]
            if len(self._closing) <= most or time.monotonic() > until_s:
                return
            wait(self._closing, 1.0, FIRST_COMPLETED)
            if self._robot is not None:
                self._fleet.lanes.beat(self._robot.name)

    def _refuse(self, index: int, number: int, error: BaseException) -> None:
        is_input = isinstance(error, InputError)
        sentence = str(error) if is_input else f"the target failed: {type(error).__name__}: {error}"
        kind = _KINDS.get(type(error), wire.Refused.FAILED)
        self._send_down(
            wire.Down(session=index, refused=wire.Refused(number=number, sentence=sentence[:1000], kind=kind))
        )

    def _send_down(self, message: wire.Down) -> None:
        if not self._is_over:
            self._send(message)
