"""A robot's stream: its messages become requests of the engine, and answers are returned in pieces."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial

from crossspec_ros.captioning.answer import Answer
from crossspec_ros.captioning.caption import Rehearsal
from crossspec_ros.captioning.live_windows import LiveWindow
from crossspec_ros.drafting.proposer import Context
from crossspec_ros.engine.request import Frames
from crossspec_ros.errors import InputError, NonFiniteError, forget_frames
from crossspec_ros.serving.fleet import MAX_WINDOWS, Fleet, Robot
from crossspec_ros.serving.robot_questions import QuestionError, check_ask, hint_draft, sampling_of
from crossspec_ros.settings import EVENT_DRAFT
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.wire import VERSION
from crossspec_ros.wire import captions_pb2 as wire
from crossspec_ros.wire.packed_frames import read_frame

MAX_PIXELS = 2_500_000
"""Maximum pixels of a frame, which the shared thread of the target resizes. Full HD has 2.1 million."""
MAX_PIXELS_HELD = 60_000_000
"""Maximum pixels of a robot's frames. Three windows of eight full-HD frames have 50 million."""
_PAUSE_S = 0.05
"""Pause between two pieces of an answer, because a message costs more than a pass of a small target."""
_KINDS: dict[type[BaseException], wire.Refused.Kind] = {
    QuestionError: wire.Refused.QUESTION,
    NonFiniteError: wire.Refused.NOT_FINITE,
}


class Pieces:
    """Sends the new tokens of an answer piece by piece."""

    def __init__(
        self,
        index: int,
        number: int,
        decode: Callable[[Sequence[int]], str],
        begun_ns: int,
        send: Callable[[wire.Down], None],
    ) -> None:
        self.number = number
        self._index, self._decode, self._begun_ns, self._send = index, decode, begun_ns, send
        self._tokens = self._passes = 0
        self._sent_s = 0.0
        self._drafted, self._accepted = Counter[str](), Counter[str]()

    @property
    def seconds(self) -> float:
        """Seconds since the question arrived."""
        return (time.perf_counter_ns() - self._begun_ns) / 1e9

    def __call__(self, answer: Answer) -> None:
        """Send the tokens since the last piece, at the end or after a pause."""
        now_s, step = time.monotonic(), answer.last
        if not answer.ended and now_s < self._sent_s + _PAUSE_S:
            return
        assert step is not None
        piece = wire.Piece(
            number=self.number,
            token_ids=answer.tokens[self._tokens :],
            text=self._decode(answer.tokens).strip(),
            ended=answer.ended,
            tokens_read=step.tokens_read,
            rows=step.rows,
            most_read=step.most_read,
            seconds=step.seconds,
            drafted=answer.drafted - self._drafted,
            accepted=answer.accepted - self._accepted,
            since_asked_s=self.seconds,
            passes=answer.passes - self._passes,
        )
        self._tokens, self._passes, self._sent_s = len(answer.tokens), answer.passes, now_s
        self._drafted, self._accepted = answer.drafted.copy(), answer.accepted.copy()
        self._send(wire.Down(session=self._index, piece=piece))


class RobotStream:
    """Handles a robot's messages one by one, and passes the server's messages to `send` from any thread.

    The last one is None. No method waits for the target.
    """

    def __init__(self, fleet: Fleet, send: Callable[[wire.Down | None], None]) -> None:
        self._fleet, self._send = fleet, send
        self._robot: Robot | None = None
        # The first question about the last window, with which the target rehearses the next one.
        self._last_ask: wire.Ask | None = None
        self._windows: OrderedDict[int, LiveWindow] = OrderedDict()
        self._is_over = False

    def handle(self, message: wire.Up) -> None:
        """Handle a message. An invalid one is refused with a sentence.

        Raises:
            InputError: the robot is not admitted, and the stream must end.
        """
        if self._is_over:
            return
        kind = message.WhichOneof("what")
        if self._robot is None:
            if kind != "hello":
                raise InputError(
                    "the stream does not begin with a hello: connect with the captioner of crossspec_ros"
                )
            self._admit(message.hello)
            return
        self._robot.last_message_s = time.monotonic()
        try:
            match kind:
                case "frame":
                    self._add_frame(message.session, message.frame)
                case "ask":
                    self._ask(message.session, message.ask)
                case "cancel":
                    self._cancel(message.session)
                case "close":
                    self._close(message.session)
                case _:
                    raise InputError(f"a second '{kind}' is invalid: see captions.proto")
        except InputError as error:
            self._fleet.counts["refused_messages"] += 1
            number = message.ask.number if kind == "ask" else 0
            self._refuse(message.session, number, error)

    def stop(self) -> None:
        """Ignore further messages. Thread-safe."""
        self._is_over = True

    def end(self) -> None:
        """Release everything after the last message."""
        self._is_over = True
        for index in list(self._windows):
            self._close(index)
        robot, self._robot = self._robot, None
        if robot is not None:
            self._fleet.leave(robot)
        # The function references this stream and its unread messages.
        self._send = lambda message: None

    def _admit(self, hello: wire.Hello) -> None:
        if hello.version != VERSION:
            raise InputError(
                f"the robot has version {hello.version} of the protocol, and the server {VERSION}: install "
                f"the same crossspec_ros on both"
            )
        fleet = self._fleet
        if hello.robot:
            self._robot = fleet.admit(hello.robot, hello.period_ns, hello.phase_ns, self._disconnect)
        spec = fleet.target.spec
        sizes = "frames", "frames_per_unit", "image_size", "frame_tokens", "most_tokens"
        welcome = wire.Welcome(
            **{name: getattr(spec, name) for name in sizes},
            vocabulary=fleet.target.vocabulary,
            phase_ns=fleet.emptiest_phase(hello.period_ns, self._robot) if self._robot else 0,
        )
        self._send_down(wire.Down(welcome=welcome))

    def _disconnect(self, reason: str) -> None:
        self._refuse(0, 0, InputError(reason))
        self._is_over = True
        self._send(None)

    def _add_frame(self, index: int, message: wire.Frame) -> None:
        held = sum(frame.nbytes for one in self._windows.values() for frame in one.frames)
        pixels = message.height * message.width
        if pixels > MAX_PIXELS or held + 3 * pixels > 3 * MAX_PIXELS_HELD:
            raise InputError(
                f"a frame of {message.width}x{message.height} exceeds the limits of a robot: let the "
                f"synchronizer send smaller frames (frame_size)"
            )
        frame = read_frame(message)
        window = self._windows.get(index) or self._open(index)
        if message.stamp_ns in window.stamps_ns:
            raise InputError(
                f"window {index} already has a frame of stamp {message.stamp_ns}: send each frame once"
            )
        first = next(iter(window.frames), frame)
        if frame.shape != first.shape:
            raise InputError(
                f"window {index} has frames of {first.shape[1]}x{first.shape[0]} and of "
                f"{message.width}x{message.height}: send a single size"
            )
        if len(window.frames) >= self._fleet.target.spec.frames:
            raise InputError(
                f"window {index} already has {len(window.frames)} frames, the target's maximum: send fewer"
            )
        window.frames.append(frame)
        window.stamps_ns.append(message.stamp_ns)
        if window.answer is None and window.stamps_ns == sorted(window.stamps_ns):
            self._fleet.engine.add_frame(window.handle, frame, message.stamp_ns)

    def _ask(self, index: int, ask: wire.Ask) -> None:
        window, fleet, begun_ns = self._window(index), self._fleet, time.perf_counter_ns()
        # A new question cancels the previous one, even if it is invalid.
        fleet.engine.cancel(window.handle)
        check_ask(ask, fleet.target)
        frames = self._frames(window, ask)
        if window.answer is None:
            # The first question about a window is likely for the next window, but further ones are not.
            self._last_ask = ask
        assert self._robot is not None
        context = Context(ask.question, drafts={EVENT_DRAFT: hint_draft(ask, fleet.target)})
        how = self._robot.policy, Trace(), ask.max_new_tokens, sampling_of(ask)
        answer = window.answer = Answer(window, context, *how)
        pieces = Pieces(index, ask.number, fleet.target.tokenizer.decode, begun_ns, self._send_down)
        answer.on_step = pieces
        answer.future.add_done_callback(partial(self._ended, window, pieces))
        fleet.engine.ask(window.handle, answer, frames)

    def _cancel(self, index: int) -> None:
        # The window may belong to an earlier stream.
        if (window := self._windows.get(index)) is not None:
            self._fleet.engine.cancel(window.handle)

    def _frames(self, window: LiveWindow, ask: wire.Ask) -> Frames:
        """Return the frames of a question, and their stamps."""
        # The length is checked before the copy, because a message may have millions of stamps.
        if len(ask.stamps_ns) > self._fleet.target.spec.frames:
            raise InputError(
                f"the question about window {window.index} names {len(ask.stamps_ns)} frames: send at most "
                f"{self._fleet.target.spec.frames}"
            )
        stamps_ns, frames = list(ask.stamps_ns), dict(zip(window.stamps_ns, window.frames, strict=True))
        missing = [stamp for stamp in stamps_ns if stamp not in frames]
        if missing or not stamps_ns:
            raise InputError(
                f"window {window.index} lacks the frames of {len(missing)} of the question's "
                f"{len(stamps_ns)} stamps: send frames before the question"
            )
        return [frames[stamp] for stamp in stamps_ns], stamps_ns

    def _rehearsal(self, window: LiveWindow) -> Answer | None:
        """Return the rehearsal of an open window. The engine's thread calls this."""
        ask, robot = self._last_ask, self._robot
        if ask is None or robot is None or window.answer is not None or self._is_over:
            return None
        how = robot.policy, Trace(), ask.max_new_tokens
        return Answer(window, Context(ask.question), *how, is_rehearsal=True)

    def _ended(self, window: LiveWindow, pieces: Pieces, over: Future[None]) -> None:
        """Count an answer, or send its error. Mostly the engine's thread calls this."""
        error = over.exception()
        if error is None:
            window.rehearsal = Rehearsal()
            self._fleet.counts["answers"] += 1
            self._fleet.on_answer(pieces.seconds)
        # A cancelled answer was replaced, or its window was closed.
        elif not isinstance(error, CancelledError):
            self._fleet.counts["failed_answers"] += 1
            self._refuse(window.index, pieces.number, error)
            forget_frames(error)

    def _window(self, index: int) -> LiveWindow:
        """Return the window of this index. Raises InputError if it has no frames, or was dropped."""
        if index not in self._windows:
            raise InputError(f"window {index} has no frames: send them before a question")
        return self._windows[index]

    def _open(self, index: int) -> LiveWindow:
        """Return a new window, and close the oldest if there are too many."""
        assert self._robot is not None
        while len(self._windows) >= MAX_WINDOWS:
            self._close(next(iter(self._windows)))
        window = self._windows[index] = LiveWindow(index)
        plan = partial(self._rehearsal, window)
        window.handle = self._fleet.engine.open(index, window.trace, self._robot.name, plan)
        return window

    def _close(self, index: int) -> None:
        window = self._windows.pop(index, None)
        if window is not None:
            # The answer references the window.
            window.answer = None
            self._fleet.engine.drop(window.handle)

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
