"""Captioner: it decides which windows are captioned, and when. The newest closed window has priority.

`step` does the most urgent job. In a node, a thread calls it (see `start`). `CodeReplay` calls it for each
window.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from crossspec_ros.captioning.caption import Holding, Listener, Options, Outcome, check_length, without_images
from crossspec_ros.captioning.standing import StandingAnswers
from crossspec_ros.captioning.wording import plain
from crossspec_ros.drafting.arms import Arms
from crossspec_ros.engine.json_grammar import check_schema
from crossspec_ros.engine.request import settle
from crossspec_ros.errors import InputError, LinkError, failures_logged, tried
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.assembler import PATIENCE
from crossspec_ros.windows.change import ChangeGate
from crossspec_ros.windows.grid import WindowGrid
from crossspec_ros.windows.quality import flags, trustworthy
from crossspec_ros.windows.window import FRAMES, Window

if TYPE_CHECKING:
    from crossspec_ros.captioning.caption import Caption, OnText
    from crossspec_ros.captioning.decoder import PrefillHiddenDecoder

_LOG = logging.getLogger(__name__)

BEHIND = "a newer window closed while captions were behind"
AT_ONCE = "a newer window closed at the same time"
"""Causes of a skipped window."""
MAX_QUESTIONS = 16
"""Maximum number of unanswered questions."""
_AT_ONCE_NS = 300_000_000
"""Maximum time between the closes of windows whose messages were delayed and arrived together."""
_UNREAD = "failed to prefill an image: its window is prefilled when it closes"
_DEACTIVATED = "the captioner was deactivated: ask again once it is active"

Reply = tuple["Caption", int]
"""An answer, and the index of its window."""


@dataclass(frozen=True)
class _Closed:
    """Window that waits for its caption, and when it closed and was complete (`perf_counter_ns`)."""

    window: Window
    closed_ns: int
    complete_ns: int

    @property
    def is_empty(self) -> bool:
        """Whether the window has no images, as in a gap of the inputs."""
        return not len(self.window.frames) and not len(self.window.event_images)


@dataclass(frozen=True, eq=False)
class _Question:
    """Question that waits. A `schema` makes its answer JSON."""

    text: str
    schema: str
    on_words: OnText
    cancel: threading.Event
    reply: Future[Reply] = field(default_factory=Future)


class Captioner:
    """Gives each closed window exactly one outcome, in order, and answers questions about the last one.

    The decoder gets the frames of open windows that the `gate` admits. The answer begins with the frame of
    the `grid`'s last slot. Without a grid it begins when the window closes, and the target does not rehearse.
    A caption is cut `deadline_s` after the close of its window; 0 sets no deadline.
    `options`, `deadline_s` and the gate's settings may change at any time. All methods but `step` are
    thread-safe. The listener gets no calls after `stop`.
    """

    def __init__(
        self,
        decoder: PrefillHiddenDecoder,
        options: Options,
        listener: Listener,
        deadline_s: float = 0.0,
        gate: ChangeGate | None = None,
        grid: WindowGrid | None = None,
    ) -> None:
        self._decoder, self._listener, self._grid = decoder, listener, grid
        self.options, self.deadline_s = options, deadline_s
        self.gate = gate or ChangeGate()
        self.pulse = Pulse("captions")
        self.changed = threading.Condition()
        self.unanswered = 0
        """Number of dropped standing questions."""
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        # Guarded by `changed`: closed windows that wait, windows without an outcome (without their pixels),
        # and unanswered questions.
        self._waiting: list[_Closed] = []
        self._unfinished: deque[Window] = deque()
        self._questions: list[_Question] = []
        # Written by `step` only: the newest judged window, the last captioned window, and the newest window
        # if it waits for a question.
        self._closed: int | None = None
        self._captioned: int | None = None
        self._uncaptioned: Window | None = None
        self._holding: Holding | None = None
        # Whether a window had already closed when the previous caption was done.
        self._is_behind = False
        self._arms = Arms()
        decoder.on_rehearsal = lambda index, text: self._listener.drafted(index, text, "rehearsal")

    @property
    def waiting(self) -> int:
        """Number of closed windows that wait for a caption."""
        return len(self._waiting)

    def start(self) -> None:
        """Start a thread that calls `step` until `stop`."""
        self._thread = self.pulse.start(self._work, "captioner")

    def is_over(self, timeout_s: float = 0.0) -> bool:
        """Return whether the thread ends within this time."""
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stop(self, timeout_s: float = 1.0) -> list[Window]:
        """Cancel the window in work, drop waiting windows, and wait up to `timeout_s` for the thread.

        Returns the windows without an outcome, without their images. Unanswered questions fail.
        """
        self.pulse.end()
        with self.changed:
            self._stopping.set()
            self._listener = Listener()
            for question in self._questions:
                question.cancel.set()
            self.changed.notify()
        self.is_over(timeout_s)
        with self.changed:
            questions, self._questions = self._questions, []
            left = list(self._unfinished)
        for question in questions:
            settle(question.reply, error=InputError(_DEACTIVATED))
        return left

    def add_image(self, index: int, kind: str, image: np.ndarray, stamp_ns: int) -> Future[None] | None:
        """Pass an image (H, W, 3) of the open window `index` to the decoder, once the gate admits it.

        The target prefills images of kind FRAMES when it has time. The event draft reads those of kind
        EVENTS. Returns the future of the event draft, if it has begun.
        """
        closed, draft = self._closed, None
        # No caption uses an image that arrives after the close of its window.
        if closed is not None and closed - PATIENCE < index <= closed:
            return None
        with failures_logged(_LOG, logging.WARNING, _UNREAD):
            for admitted, pixels, at_ns in self.gate.stream(index, kind, image, stamp_ns):
                if admitted == FRAMES:
                    self._read_ahead(index, pixels, at_ns)
                else:
                    draft = self._draft(index, pixels)
        return draft

    def close(self, window: Window, closed_ns: int) -> None:
        """Caption this window next. It closed at `closed_ns` (`perf_counter_ns`)."""
        closed = _Closed(window, closed_ns, time.perf_counter_ns())
        with self.changed:
            if not closed.is_empty:
                # Older windows will be skipped and need no pixels.
                self._waiting = [replace(item, window=without_images(item.window)) for item in self._waiting]
            self._waiting.append(closed)
            self._unfinished.append(without_images(window))
            self.changed.notify()

    def ask(
        self, text: str, schema: str = "", on_words: OnText = None, cancel: threading.Event | None = None
    ) -> Future[Reply]:
        """Answer a question about the last captioned window, or about the next one if there is none.

        A `schema` makes the answer JSON. Setting `cancel` cuts the answer. `on_words` gets the verified text
        so far. Questions are answered in order; cancelled ones fail at once.

        Raises:
            InputError: the captioner was stopped, the schema is invalid, the question is too long, or too
                many questions wait.
        """
        check_length(text)
        if schema:
            check_schema(schema)
        with self.changed:
            if self._stopping.is_set():
                raise InputError(_DEACTIVATED)
            if sum(not question.cancel.is_set() for question in self._questions) >= MAX_QUESTIONS:
                raise InputError(f"{MAX_QUESTIONS} questions wait already: ask again when some are answered")
            question = _Question(text, schema, on_words, cancel or threading.Event())
            self._questions.append(question)
            self.changed.notify()
        return question.reply

    def step(self) -> bool:
        """Do the most urgent job, the closed windows or else a question; return whether there was one."""
        with self.changed:
            waiting, self._waiting = self._waiting, []
        for number, item in enumerate(waiting, 1):
            options = self.options
            # Empty windows of a gap take no time, so older windows are not skipped because of them.
            later = [] if item.is_empty else [one for one in waiting[number:] if not one.is_empty]
            newer = later[0] if later else None
            outcome = tried(partial(self._outcome, item, options, newer))
            if isinstance(outcome, Exception):
                outcome = Outcome(item.window, options, error=outcome)
            self._finish(outcome)
        if waiting:
            self._is_behind = not all(item.is_empty for item in self._waiting)
            return True
        return self._answer()

    def _work(self) -> None:
        stopping = self._stopping
        while not stopping.is_set():
            with self.changed:
                self.changed.wait_for(lambda: self._waiting or self._next_question() or stopping.is_set())
            with self.pulse.busy():
                if not stopping.is_set():
                    self.step()
        self._decoder.give_up()

    def _read_ahead(self, index: int, frame: np.ndarray, stamp_ns: int) -> None:
        grid, options = self._grid, self.options
        is_last = grid is not None and grid.slot(stamp_ns) == grid.slots - 1
        rehearsed = options if grid is not None else None
        read = self._decoder.stream_frame(index, frame, stamp_ns, is_last, rehearsed)
        if read is not None:
            read.add_done_callback(_log_unread)
        # If captions are behind, this window may be skipped: its answer begins when it closes.
        if is_last and not self._is_behind and not self._stopping.is_set():
            self._decoder.begin(index, options)

    def _draft(self, index: int, image: np.ndarray) -> Future[None] | None:
        # If captions are behind, this window may be skipped, and the processor is busy.
        if self._is_behind:
            return None
        return self._decoder.stream_event_image(
            index, image, self.options, lambda text: self._listener.drafted(index, text, "event_draft")
        )

    def _publish_standing(self, window: Window, answers: StandingAnswers) -> None:
        for standing, answer in answers:
            with self.changed:
                self.unanswered += isinstance(answer, CancelledError)
            with failures_logged(_LOG, logging.ERROR, "failed to publish an answer"):
                self._listener.standing(standing, answer, window)

    def _next_question(self) -> _Question | None:
        """Return the first question that can be answered, or was cancelled."""
        askable = self._captioned is not None or self._uncaptioned is not None
        return next((one for one in self._questions if askable or one.cancel.is_set()), None)

    def _answer(self) -> bool:
        """Answer one question. Return False without a question, or without a window to answer it about."""
        with self.changed:
            question = self._next_question()
        if question is None:
            return False
        reply = tried(partial(self._reply, question))
        with self.changed:
            # `stop` settles all remaining questions, including this one.
            if self._stopping.is_set():
                return True
            self._questions.remove(question)
        if isinstance(reply, Exception):
            settle(question.reply, error=reply)
        else:
            settle(question.reply, reply)
        return True

    def _reply(self, question: _Question) -> Reply:
        """Answer about the last captioned window, or about a newer one that is captioned only now."""
        decoder, window = self._decoder, self._uncaptioned
        how = Trace(), question.on_words, question.cancel
        if question.cancel.is_set():
            raise InputError("the question was cancelled: ask it again")
        grammar = decoder.grammar(question.schema)
        options = replace(self.options, question=question.text, grammar=grammar, first=())
        if window is None:
            assert self._captioned is not None
            return decoder.ask(options, *how), self._captioned
        decoder.check_question(question.text)
        faults = flags(window)
        answer = decoder.caption(trustworthy(window, faults), options, *how)
        if answer.unreached:
            raise LinkError(answer.unreached)
        if not answer.askable:
            raise InputError(
                f"the newest window has no usable frames ({plain(faults)}): check the RGB camera, and ask "
                f"again"
            )
        self._uncaptioned, self._captioned = None, window.index
        return answer, window.index

    def _outcome(self, item: _Closed, options: Options, newer: _Closed | None) -> Outcome:
        """Caption this window, unless a newer one waits or the gate decides against it."""
        window, holding = item.window, self._holding
        self._closed, self._uncaptioned = window.index, None
        verdict = self.gate.judge(window, None if holding is None else holding.window.index)
        if verdict != "unchanged":
            self._holding = None
        if verdict == "caption":
            if newer is None:
                return self._caption(item, options)
            is_at_once = newer.closed_ns - item.closed_ns < _AT_ONCE_NS
            return Outcome(window, options, skipped=AT_ONCE if is_at_once else BEHIND)
        self._uncaptioned = window if verdict == "unasked" and newer is None else None
        # Only the newest window still has its images.
        faults = flags(window) if newer is None else ()
        return Outcome(without_images(window), options, flags=faults, holds=self._holding)

    def _caption(self, item: _Closed, options: Options) -> Outcome:
        window, outcome = item.window, Outcome(item.window, options, cancel=self._stopping)
        trace = outcome.trace
        trace.mark("closed", item.closed_ns)
        trace.add("queue", item.complete_ns, time.perf_counter_ns())
        with trace.span("check"):
            faults = flags(window)
            trusted = trustworthy(window, faults)
        deadline_ns = item.closed_ns + round(self.deadline_s * 1e9) if self.deadline_s else None
        speculates = not self._is_behind or self._arms.choose()
        self._captioned, begun = window.index, time.perf_counter()
        made = tried(
            lambda: self._decoder.caption(
                trusted,
                options,
                trace,
                lambda text: self._listener.words(window.index, text),
                self._stopping,
                deadline_ns,
                partial(self._publish_standing, window),
                speculates,
            )
        )
        if isinstance(made, Exception):
            return replace(outcome, error=made, flags=faults)
        if self._is_behind and made.source == "target" and not made.late:
            self._arms.observe(speculates, time.perf_counter() - begun)
        trace.add("total", item.closed_ns, time.perf_counter_ns())
        if "first_token" in trace.marks:
            trace.add("first_token", item.closed_ns, trace.marks["first_token"])
        outcome = outcome.captioned(made, faults)
        self._holding = outcome.holding
        return outcome

    def _finish(self, outcome: Outcome) -> None:
        """Publish the outcome of a window, and then queue the standing questions about it."""
        # `stop` replaces the listener.
        window, listener = outcome.window, self._listener
        if not self._stopping.is_set():
            complaint = f"failed to publish the outcome of window {window.index}"
            with failures_logged(_LOG, logging.ERROR, complaint):
                listener.outcome(outcome)
            # After publishing, so that `stop` returns a window whose publication fails meanwhile.
            with self.changed:
                self._unfinished.popleft()
        if outcome.caption is not None and outcome.caption.askable:
            publish = partial(self._publish_standing, without_images(window))
            for choices in outcome.options.later:
                # A decoder that was closed meanwhile has no window.
                failed = tried(partial(self._decoder.choose, choices, Trace(), publish))
                if isinstance(failed, Exception):
                    publish([(standing, failed) for standing in choices.standing])


def _log_unread(read: Future[None]) -> None:
    with failures_logged(_LOG, logging.WARNING, _UNREAD):
        if not read.cancelled():
            read.result()
