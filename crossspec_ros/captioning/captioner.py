"""Captioner: which window is captioned, when, and what becomes of each; the newest closed window wins.

`step` does the most urgent job. In a node a thread calls it, see `start`; a recording in code calls it window
by window.
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
from crossspec_ros.captioning.standing import Told
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
"""Questions that may wait, the one in work included."""
_AT_ONCE_NS = 300_000_000
"""Windows that close within this time belong to messages that were held up."""
_UNREAD = "an image could not be read ahead: its window is read when it closes"
_DEACTIVATED = "the captioner was deactivated: ask again once it is active"

Reply = tuple["Caption", int]
"""An answer, and the index of the window that was asked about."""


@dataclass(frozen=True)
class _Closed:
    """Window that waits for its caption; it was announced and complete at these times (`perf_counter_ns`)."""

    window: Window
    closed_ns: int
    complete_ns: int

    @property
    def is_empty(self) -> bool:
        """Whether the window has no images, as in a gap of the inputs."""
        return not len(self.window.frames) and not len(self.window.event_images)


@dataclass(frozen=True, eq=False)
class _Question:
    """Question that waits. Its answer is JSON of the `schema`, if there is one."""

    text: str
    schema: str
    on_words: OnText
    cancel: threading.Event
    reply: Future[Reply] = field(default_factory=Future)


class Captioner:
    """Gives each submitted window exactly one outcome, in order, and answers questions about the last one.

    Frames of open windows go to the decoder as the `gate` admits them. With the frame of the `grid`'s last
    slot the answer begins; without a grid it begins when the window closes, and nothing is rehearsed. A
    caption that is not done `deadline_s` after its window closed is cut short; 0 sets no deadline.
    `options`, `deadline_s` and the gate's settings may be changed at any time. Any thread may call all but
    `step`. The listener hears nothing after `stop`.
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
        """Standing questions that were dropped."""
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        # Under `changed`: closed windows that wait, windows without an outcome and without their pixels, and
        # questions without an answer.
        self._waiting: list[_Closed] = []
        self._unfinished: deque[Window] = deque()
        self._questions: list[_Question] = []
        # Written by `step` alone: the newest window that was judged, the last one that was captioned, and the
        # last one that waits for a question.
        self._closed: int | None = None
        self._captioned: int | None = None
        self._unasked: Window | None = None
        self._holding: Holding | None = None
        # A window had closed when the caption before was done.
        self._is_behind = False
        self._arms = Arms()
        decoder.on_rehearsal = lambda index, text: self._listener.drafted(index, text, "rehearsal")

    @property
    def waiting(self) -> int:
        """Number of closed windows that wait to be captioned, or skipped."""
        return len(self._waiting)

    def start(self) -> None:
        """Let a thread step until `stop`."""
        self._thread = self.pulse.start(self._work, "captioner")

    def is_over(self, timeout_s: float = 0.0) -> bool:
        """Return whether the thread has ended, or does so within this time."""
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stop(self, timeout_s: float = 1.0) -> list[Window]:
        """Cancel the window in work, drop those that wait, and end the thread if it ends in time.

        Returns the windows that have no outcome, without their images. Questions that wait or are in work are
        answered with that.
        """
        self.pulse.end()
        with self.changed:
            self._stopping.set()
            self._listener = Listener()
            for asked in self._questions:
                asked.cancel.set()
            self.changed.notify()
        self.is_over(timeout_s)
        with self.changed:
            questions, self._questions = self._questions, []
            left = list(self._unfinished)
        for asked in questions:
            settle(asked.reply, error=InputError(_DEACTIVATED))
        return left

    def add_image(self, index: int, kind: str, image: np.ndarray, stamp_ns: int) -> Future[None] | None:
        """Take an image (H, W, 3) of the window `index`, which is still open, once the gate admits it.

        One of kind FRAMES is prefilled when there is time, one of kind EVENTS is for the event draft. Returns
        the draft's work, if it has begun by now.
        """
        closed, draft = self._closed, None
        # An image that comes after its window has closed is in nobody's caption.
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
        """Caption this window next; it was announced as closed at `closed_ns` (`perf_counter_ns`)."""
        closed = _Closed(window, closed_ns, time.perf_counter_ns())
        with self.changed:
            if not closed.is_empty:
                # A window that will be skipped needs no pixels.
                self._waiting = [replace(item, window=without_images(item.window)) for item in self._waiting]
            self._waiting.append(closed)
            self._unfinished.append(without_images(window))
            self.changed.notify()

    def ask(
        self, question: str, schema: str = "", on_words: OnText = None, cancel: threading.Event | None = None
    ) -> Future[Reply]:
        """Answer this about the window captioned last, or the first one there will be.

        The answer is JSON of the `schema`, if there is one; once `cancel` is set, it is cut short. `on_words`
        gets the verified text so far. Questions are answered in their order, cancelled ones at once.

        Raises:
            InputError: the captioner was stopped, the schema is none, the question is far too long, or too
                many wait.
        """
        check_length(question)
        if schema:
            check_schema(schema)
        with self.changed:
            if self._stopping.is_set():
                raise InputError(_DEACTIVATED)
            if sum(not asked.cancel.is_set() for asked in self._questions) >= MAX_QUESTIONS:
                raise InputError(f"{MAX_QUESTIONS} questions wait already: ask again when some are answered")
            asked = _Question(question, schema, on_words, cancel or threading.Event())
            self._questions.append(asked)
            self.changed.notify()
        return asked.reply

    def step(self) -> bool:
        """Do the most urgent job: the windows that have closed, or else one question.

        Returns whether there was one.
        """
        with self.changed:
            waiting, self._waiting = self._waiting, []
        for number, item in enumerate(waiting, 1):
            options = self.options
            # The empty windows of a gap take no time, and are no reason to skip a window before them.
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
        # The answer of a window that may be skipped begins when it closes.
        if is_last and not self._is_behind and not self._stopping.is_set():
            self._decoder.begin(index, options)

    def _draft(self, index: int, image: np.ndarray) -> Future[None] | None:
        # The window of a captioner that is behind may be skipped, and the processor is busy.
        if self._is_behind:
            return None
        return self._decoder.stream_event_image(
            index, image, self.options, lambda text: self._listener.drafted(index, text, "event_draft")
        )

    def _tell_standing(self, window: Window, answers: Told) -> None:
        for standing, answer in answers:
            with self.changed:
                self.unanswered += isinstance(answer, CancelledError)
            with failures_logged(_LOG, logging.ERROR, "an answer could not be published"):
                self._listener.standing(standing, answer, window)

    def _next_question(self) -> _Question | None:
        """Return the first question that can be answered, if only because it was cancelled."""
        askable = self._captioned is not None or self._unasked is not None
        return next((asked for asked in self._questions if askable or asked.cancel.is_set()), None)

    def _answer(self) -> bool:
        """Answer one question; return False if there is none, or no window to ask about."""
        with self.changed:
            asked = self._next_question()
        if asked is None:
            return False
        reply = tried(partial(self._reply, asked))
        with self.changed:
            # `stop` answers what is left, also if it did not wait for this one.
            if self._stopping.is_set():
                return True
            self._questions.remove(asked)
        if isinstance(reply, Exception):
            settle(asked.reply, error=reply)
        else:
            settle(asked.reply, reply)
        return True

    def _reply(self, asked: _Question) -> Reply:
        """Ask about the window captioned last, or a newer one that is captioned only now."""
        decoder, window, how = self._decoder, self._unasked, (Trace(), asked.on_words, asked.cancel)
        if asked.cancel.is_set():
            raise InputError("the question was cancelled: ask it again")
        grammar = decoder.grammar(asked.schema)
        options = replace(self.options, question=asked.text, grammar=grammar, first=())
        if window is None:
            assert self._captioned is not None
            return decoder.ask(options, *how), self._captioned
        decoder.check_question(asked.text)
        faults = flags(window)
        answer = decoder.caption(trustworthy(window, faults), options, *how)
        if answer.unreached:
            raise LinkError(answer.unreached)
        if not answer.askable:
            raise InputError(
                f"the newest window has no frames that show something ({plain(faults)}): ask again when the "
                f"RGB camera sees"
            )
        self._unasked, self._captioned = None, window.index
        return answer, window.index

    def _outcome(self, item: _Closed, options: Options, newer: _Closed | None) -> Outcome:
        """Caption this window, unless a newer one waits or it is not to be captioned."""
        window, holding = item.window, self._holding
        self._closed, self._unasked = window.index, None
        verdict = self.gate.judge(window, None if holding is None else holding.window.index)
        if verdict != "unchanged":
            self._holding = None
        if verdict == "caption":
            if newer is None:
                return self._caption(item, options)
            is_at_once = newer.closed_ns - item.closed_ns < _AT_ONCE_NS
            return Outcome(window, options, skipped=AT_ONCE if is_at_once else BEHIND)
        self._unasked = window if verdict == "unasked" and newer is None else None
        # Only the newest one has its images still.
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
                partial(self._tell_standing, window),
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
        """Tell what became of a window, then ask the standing questions about it, which wait for frames."""
        # `stop` takes the listener away.
        window, listener = outcome.window, self._listener
        if not self._stopping.is_set():
            untold = f"the outcome of window {window.index} could not be published"
            with failures_logged(_LOG, logging.ERROR, untold):
                listener.outcome(outcome)
            # Not before: if `stop` does not wait for it, it may fail, and be in nobody's report.
            with self.changed:
                self._unfinished.popleft()
        if outcome.caption is not None and outcome.caption.askable:
            tell = partial(self._tell_standing, without_images(window))
            for choices in outcome.options.later:
                # A decoder that was closed meanwhile has no window.
                failed = tried(partial(self._decoder.choose, choices, Trace(), tell))
                if isinstance(failed, Exception):
                    tell([(standing, failed) for standing in choices.standing])


def _log_unread(read: Future[None]) -> None:
    with failures_logged(_LOG, logging.WARNING, _UNREAD):
        if not read.cancelled():
            read.result()
