"""One robot's stream: its messages become requests of the engine, and answers go back as pieces."""

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
from crossspec_ros.serving.robot_asks import QuestionError, asked_sampling, check_ask, hinted
from crossspec_ros.settings import EVENT_DRAFT
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.wire import VERSION
from crossspec_ros.wire import captions_pb2 as wire
from crossspec_ros.wire.packed_frames import read_frame

MAX_PIXELS = 2_500_000
"""Largest frame: full HD has 2.1 million. The target's thread, which all robots share, resizes it."""
MAX_PIXELS_HELD = 60_000_000
"""Pixels of a robot's frames: three windows of eight full-HD frames have 50 million."""
_PAUSE_S = 0.05
"""Pause between two pieces of an answer, because a message costs more than a pass of a small target."""
_KINDS: dict[type[BaseException], wire.Refused.Kind] = {
    QuestionError: wire.Refused.QUESTION,
    NonFiniteError: wire.Refused.NOT_FINITE,
}


class Pieces:
    """Sends what the passes of an answer have added since the last piece."""

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
        """Seconds since the question came."""
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
    """Takes a robot's messages in order, one at a time, and gives the server's to `send` from any thread.

    The last one is None. No method waits for the target.
    """

    def __init__(self, fleet: Fleet, send: Callable[[wire.Down | None], None]) -> None:
        self._fleet, self._send = fleet, send
        self._robot: Robot | None = None
        # The question about the robot's last window, with which the next one is rehearsed.
        self._asked: wire.Ask | None = None
        self._windows: OrderedDict[int, LiveWindow] = OrderedDict()
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
                case "ask":
                    self._ask(message.session, message.ask)
                case "cancel":
                    self._cancel(message.session)
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
        if hello.robot:
            self._robot = fleet.admit(hello.robot, hello.period_ns, hello.phase_ns, self._let_go)
        spec = fleet.target.spec
        sizes = "frames", "frames_per_unit", "image_size", "frame_tokens", "most_tokens"
        welcome = wire.Welcome(
            **{name: getattr(spec, name) for name in sizes},
            vocabulary=fleet.target.vocabulary,
            phase_ns=fleet.emptiest_phase(hello.period_ns, self._robot) if self._robot else 0,
        )
        self._send_down(wire.Down(welcome=welcome))

    def _let_go(self, reason: str) -> None:
        self._refuse(0, 0, InputError(reason))
        self._is_over = True
        self._send(None)

    def _take_frame(self, index: int, message: wire.Frame) -> None:
        held = sum(frame.nbytes for one in self._windows.values() for frame in one.frames)
        pixels = message.height * message.width
        if pixels > MAX_PIXELS or held + 3 * pixels > 3 * MAX_PIXELS_HELD:
            raise InputError(
                f"a frame of {message.width}x{message.height} is more than is held of a robot: let the "
                f"synchronizer send smaller ones (frame_size)"
            )
        frame = read_frame(message)
        window = self._windows.get(index) or self._opened(index)
        if message.stamp_ns in window.stamps_ns:
            raise InputError(
                f"window {index} has a frame of stamp {message.stamp_ns} already: send each once"
            )
        first = next(iter(window.frames), frame)
        if frame.shape != first.shape:
            raise InputError(
                f"window {index} has frames of {first.shape[1]}x{first.shape[0]} and one of "
                f"{message.width}x{message.height}: send one size"
            )
        if len(window.frames) >= self._fleet.target.spec.frames:
            raise InputError(
                f"window {index} has {len(window.frames)} frames, as many as the target takes: send no more"
            )
        window.frames.append(frame)
        window.stamps_ns.append(message.stamp_ns)
        if window.answer is None and window.stamps_ns == sorted(window.stamps_ns):
            self._fleet.engine.add_frame(window.handle, frame, message.stamp_ns)

    def _ask(self, index: int, ask: wire.Ask) -> None:
        window, fleet, begun_ns = self._known(index), self._fleet, time.perf_counter_ns()
        # It replaces the question before, also if the target cannot take it.
        fleet.engine.cancel(window.handle)
        check_ask(ask, fleet.target)
        frames = self._frames(window, ask)
        if window.answer is None:
            # Further questions about a window are not those of the next one.
            self._asked = ask
        assert self._robot is not None
        context = Context(ask.question, drafts={EVENT_DRAFT: hinted(ask, fleet.target)})
        how = self._robot.policy, Trace(), ask.max_new_tokens, asked_sampling(ask)
        answer = window.answer = Answer(window, context, *how)
        pieces = Pieces(index, ask.number, fleet.target.tokenizer.decode, begun_ns, self._send_down)
        answer.on_step = pieces
        answer.future.add_done_callback(partial(self._ended, window, pieces))
        fleet.engine.ask(window.handle, answer, frames)

    def _cancel(self, index: int) -> None:
        # A window of a link that broke is not known here.
        if (window := self._windows.get(index)) is not None:
            self._fleet.engine.cancel(window.handle)

    def _frames(self, window: LiveWindow, ask: wire.Ask) -> Frames:
        """Return the frames that a question is about, and their stamps."""
        # Lists are measured before they are copied: one message may hold millions.
        if len(ask.stamps_ns) > self._fleet.target.spec.frames:
            raise InputError(
                f"window {window.index} is asked about with {len(ask.stamps_ns)} frames, more than the "
                f"target takes: send {self._fleet.target.spec.frames} at most"
            )
        stamps_ns, frames = list(ask.stamps_ns), dict(zip(window.stamps_ns, window.frames, strict=True))
        missing = [stamp for stamp in stamps_ns if stamp not in frames]
        if missing or not stamps_ns:
            raise InputError(
                f"window {window.index} lacks the frames of {len(missing)} stamps, of {len(stamps_ns)} asked "
                f"for: send frames before they are asked about"
            )
        return [frames[stamp] for stamp in stamps_ns], stamps_ns

    def _rehearsal(self, window: LiveWindow) -> Answer | None:
        """Return what an open window is rehearsed with, in the engine's thread."""
        ask, robot = self._asked, self._robot
        if ask is None or robot is None or window.answer is not None or self._is_over:
            return None
        how = robot.policy, Trace(), ask.max_new_tokens
        return Answer(window, Context(ask.question), *how, is_rehearsal=True)

    def _ended(self, window: LiveWindow, pieces: Pieces, over: Future[None]) -> None:
        """Count an answer, or send why there is none; mostly the engine's thread calls this."""
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

    def _known(self, index: int) -> LiveWindow:
        """Return the window of this index; raise InputError without its frames, which may be dropped."""
        if index not in self._windows:
            raise InputError(f"window {index} has no frames: send them before a question")
        return self._windows[index]

    def _opened(self, index: int) -> LiveWindow:
        """Return a new window; close the oldest if there are too many."""
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
            # The answer holds the window.
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
