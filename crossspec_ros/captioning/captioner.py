"""Captioner: which window is captioned, when, and what becomes of each; the newest closed window wins.

It has no thread: `step` does the most urgent job, `caption_thread.py` calls it in a node, and a recording
in code calls it window by window.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from crossspec_ros.captioning.answer import Cancel
from crossspec_ros.captioning.caption import MOST_QUESTION
from crossspec_ros.captioning.outcome import Holding, Outcome, asked_about, caption_faults, without_images
from crossspec_ros.captioning.standing import Choices, OnStanding, StandingQuestions, Told, paired
from crossspec_ros.drafting.arms import Arms
from crossspec_ros.engine.json_grammar import GrammarState, checked_schema
from crossspec_ros.errors import InputError, failures_logged, tried
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.assembler import PATIENCE
from crossspec_ros.windows.change import ChangeGate, Release
from crossspec_ros.windows.grid import WindowGrid
from crossspec_ros.windows.quality import flags, trustworthy
from crossspec_ros.windows.window import EVENTS, FRAMES, Window

if TYPE_CHECKING:
    from crossspec_ros.captioning.caption import Caption
    from crossspec_ros.captioning.decoder import PrefillHiddenDecoder

_LOG = logging.getLogger(__name__)

MAX_QUESTIONS = 16
"""Questions that may wait, the one in work included."""
_UNREAD = "an image could not be read ahead, its window is read when it closes"

OnDraft = Callable[[int, str, str], None]
"""Takes the index of a window, an unverified text about it, and the source of that text."""
OnAnswer = Callable[["Caption | Exception", "int | None"], None]
"""Takes an answer, or why there is none, and the index of the window that was asked about."""


@dataclass(frozen=True)
class _Closed:
    """Window that waits for its caption; it was announced and complete at these times (`perf_counter_ns`)."""

    window: Window
    closed_ns: int
    complete_ns: int


@dataclass(frozen=True)
class _Question:
    """Question that waits. Its answer is JSON of the `schema`, if there is one."""

    text: str
    on_answer: OnAnswer
    schema: str
    on_words: Callable[[str], None] | None
    cancel: Cancel


class Captioner:
    """Gives each submitted window exactly one outcome, in order, and answers questions about the last one.

    Frames of open windows go to the decoder as the `gate` admits them. With the frame of the `grid`'s last
    slot the answer begins; without a grid it begins when the window closes, and nothing is rehearsed. A
    caption that is not done `deadline_s` after its window closed is cut short; 0 sets no deadline.
    `question`, `grammar`, `standing`, `deadline_s` and the gate's settings may be changed at any time. Any
    thread may call all but `step`. The callbacks are called by the thread of `step` and those of the decoder,
    none after `stop`: `on_draft` and `on_words` with unverified and verified text so far, `on_outcome` with
    each window's end, `on_standing` with each answer to a standing question.
    """

    def __init__(
        self,
        decoder: PrefillHiddenDecoder,
        question: str,
        on_draft: OnDraft,
        on_words: Callable[[str], None],
        on_outcome: Callable[[Outcome], None],
        deadline_s: float = 0.0,
        standing: StandingQuestions = StandingQuestions(),  # noqa: B008
        on_standing: OnStanding = lambda *answered: None,
        gate: ChangeGate | None = None,
        grid: WindowGrid | None = None,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._decoder, self._grid, self._beat = decoder, grid, beat
        self.gate = gate or ChangeGate()
        self.question, self.standing, self.deadline_s = question, standing, deadline_s
        self.grammar: GrammarState | None = None
        self._on_draft, self._on_words, self._on_outcome = on_draft, on_words, on_outcome
        self._on_standing = on_standing
        self.changed = threading.Condition()
        self._waiting: list[_Closed] = []
        # Windows without an outcome, and without their pixels.
        self._unfinished: deque[Window] = deque()
        self._questions: deque[_Question] = deque()
        # The newest window that was judged, the last one that was captioned, and the last one that waits for
        # a question.
        self._closed: int | None = None
        self._captioned: int | None = None
        self._unasked: Window | None = None
        self._holding: Holding | None = None
        # A window had closed when the caption before was done.
        self._is_behind = False
        self._arms = Arms()
        self.unanswered = 0
        """Standing questions that were dropped."""
        # Passes of standing questions that are not answered yet.
        self._passes_left = 0
        self._stopping = threading.Event()
        self._cancel = Cancel(beat)
        decoder.on_rehearsal = partial(self._tell_draft, "rehearsal")

    @property
    def waiting(self) -> int:
        """Number of closed windows that wait to be captioned, or skipped."""
        return len(self._waiting)

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do."""
        return bool(self._waiting) or self._can_answer()

    @property
    def is_stopped(self) -> bool:
        """Whether it was stopped."""
        return self._stopping.is_set()

    def add_frame(self, index: int, frame: np.ndarray, stamp_ns: int) -> None:
        """Prefill this frame (H, W, 3) of the window `index`, which is still open, when there is time."""
        self._stream(index, FRAMES, frame, partial(self._read_ahead, index, frame, stamp_ns))

    def add_event_image(self, index: int, image: np.ndarray) -> Future[None] | None:
        """Give this event image (H, W, 3) of the window `index`, which is still open, to the event draft.

        Returns the draft's work, if it has begun by now.
        """
        begun: list[Future[None] | None] = []
        self._stream(index, EVENTS, image, lambda: begun.append(self._draft(index, image)))
        return begun[-1] if begun else None

    def close(self, window: Window, closed_ns: int) -> None:
        """Caption this window next; it was announced as closed at `closed_ns` (`perf_counter_ns`)."""
        with self.changed:
            # A window that will be skipped needs no pixels.
            self._waiting = [replace(item, window=without_images(item.window)) for item in self._waiting]
            self._waiting.append(_Closed(window, closed_ns, time.perf_counter_ns()))
            self._unfinished.append(without_images(window))
            self.changed.notify()

    def ask(
        self,
        question: str,
        on_answer: OnAnswer,
        schema: str = "",
        on_words: Callable[[str], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> None:
        """Answer this about the window captioned last, or the first one there will be.

        The answer is JSON of the `schema`, if there is one; once `cancel` is set, it is cut short. `on_words`
        gets the verified text so far, `on_answer` the answer or why there is none, in the order of the
        questions.

        Raises:
            InputError: the captioner was stopped, the schema is none, the question is far too long, or too
                many wait.
        """
        # Before megabytes wait, or are made tokens of.
        if len(question) > MOST_QUESTION:
            raise InputError(
                f"the question has {len(question)} characters, but at most {MOST_QUESTION} are taken: "
                f"shorten it"
            )
        if schema:
            checked_schema(schema)
        with self.changed:
            if self.is_stopped:
                raise _deactivated()
            if sum(not asked.cancel.is_set() for asked in self._questions) >= MAX_QUESTIONS:
                raise InputError(f"{MAX_QUESTIONS} questions wait already: ask again when some are answered")
            either = Cancel(self._beat, cancel)
            self._questions.append(_Question(question, on_answer, schema, on_words, either))
            self.changed.notify()

    def step(self) -> bool:
        """Do the most urgent job: the windows that have closed, or else one question.

        Returns whether there was one.
        """
        with self.changed:
            waiting, self._waiting = self._waiting, []
        for item in waiting:
            outcome = tried(partial(self._outcome, item, is_newest=item is waiting[-1]))
            if isinstance(outcome, Exception):
                outcome = Outcome(item.window, Trace(), error=outcome)
            self._finish(outcome)
            self._ask_standing(outcome)
        if waiting:
            self._is_behind = bool(self._waiting)
            return True
        return self._answer()

    def settle(self) -> None:
        """Wait for the answers to the standing questions about the window captioned last."""
        with self.changed:
            self.changed.wait_for(lambda: not self._passes_left)

    def stop(self) -> None:
        """Cancel what is in work."""
        with self.changed:
            self._stopping.set()
            for cancel in (self._cancel, *(asked.cancel for asked in self._questions)):
                cancel.set()
            self.changed.notify()

    def end(self) -> list[Window]:
        """Answer the questions that are left; return the windows without an outcome, without images."""
        while self._questions:
            self._questions.popleft().on_answer(_deactivated(), None)
        with self.changed:
            return list(self._unfinished)

    def _stream(self, index: int, kind: str, image: np.ndarray, give: Release) -> None:
        # An image that comes after its window has closed is in nobody's caption.
        closed = self._closed
        if closed is not None and closed - PATIENCE < index <= closed:
            return
        with failures_logged(_LOG, logging.WARNING, _UNREAD):
            self.gate.stream(index, kind, image, give)

    def _draft(self, index: int, image: np.ndarray) -> Future[None] | None:
        # The window of a captioner that is behind may be skipped, and the processor is busy.
        if self._is_behind:
            return None
        tell = partial(self._tell_draft, "event_draft", index)
        with failures_logged(_LOG, logging.WARNING, "an event image could not be drafted from"):
            return self._decoder.stream_event_image(index, image, self.question, tell)
        return None

    def _tell_draft(self, source: str, index: int, text: str) -> None:
        if not self.is_stopped:
            self._on_draft(index, text, source)

    def _read_ahead(self, index: int, frame: np.ndarray, stamp_ns: int) -> None:
        with failures_logged(_LOG, logging.WARNING, _UNREAD):
            grid = self._grid
            is_last = grid is not None and grid.slot(stamp_ns) == grid.slots - 1
            self._prepare()
            read = self._decoder.stream_frame(index, frame, stamp_ns, is_last)
            if read is not None:
                read.add_done_callback(_log_unread)
            # The answer of a window that may be skipped begins when it closes.
            if is_last and not self._is_behind and not self.is_stopped:
                self._decoder.begin(index, self.question)

    def _prepare(self) -> None:
        """Tell the decoder what windows are asked now."""
        self._decoder.rehearsed_question = self.question if self._grid is not None else ""
        self._decoder.grammar, self._decoder.first = self.grammar, self.standing.first

    def _can_answer(self) -> bool:
        """Test for a question that can be answered, if only because it was cancelled."""
        askable = self._captioned is not None or self._unasked is not None
        return bool(self._questions) and (askable or self._questions[0].cancel.is_set())

    def _answer(self) -> bool:
        """Answer one question; return False if there is none, or no window to ask about."""
        with self.changed:
            if not self._can_answer():
                return False
            asked = self._questions[0]
        answer = tried(partial(self._asked, asked))
        with self.changed:
            # `end` answers what is left, also if it did not wait for this one.
            if self.is_stopped:
                return True
            self._questions.popleft()
        with failures_logged(_LOG, logging.ERROR, "an answer could not be published"):
            asked.on_answer(answer, self._captioned)
        return True

    def _asked(self, asked: _Question) -> Caption:
        """Return the answer about the window captioned last, or a newer one that is captioned only now."""
        window, how = self._unasked, (Trace(), asked.on_words, asked.cancel)
        if asked.cancel.is_set():
            raise InputError("the question was cancelled: ask it again")
        grammar = self._decoder.grammars.compiled(asked.schema) if asked.schema else None
        if window is None:
            return self._decoder.ask(asked.text, *how, grammar=grammar)
        self._decoder.check_question(asked.text)
        # No window is open to the decoder while captions wait for questions.
        self._decoder.grammar, self._decoder.first = grammar, ()
        faults = flags(window)
        caption = asked_about(self._decoder.caption(trustworthy(window, faults), asked.text, *how), faults)
        self._unasked, self._captioned = None, window.index
        return caption

    def _ask_standing(self, outcome: Outcome) -> None:
        """Ask the standing questions about a window that was captioned; they wait for frames."""
        if outcome.caption is not None and outcome.caption.askable:
            window = without_images(outcome.window)
            for choices in self.standing.later:
                with self.changed:
                    self._passes_left += 1
                self._decoder.choose(choices, Trace(), partial(self._tell_later, window))

    def _tell_later(self, window: Window, choices: Choices, answers: Told) -> None:
        self._tell_standing(window, choices, answers)
        with self.changed:
            self._passes_left -= 1
            self.changed.notify()

    def _tell_standing(self, window: Window, choices: Choices, answers: Told) -> None:
        for standing, answer in paired(choices, answers):
            self.unanswered += isinstance(answer, Exception)
            # The decoder drops what is left with the window.
            if self.is_stopped or isinstance(answer, CancelledError):
                continue
            with failures_logged(_LOG, logging.ERROR, "an answer could not be published"):
                self._on_standing(standing, answer, window)

    def _outcome(self, item: _Closed, is_newest: bool) -> Outcome:
        """Caption this window, unless a newer one waits or it is not to be captioned."""
        index, holding = item.window.index, self._holding
        self._closed, self._unasked = index, None
        verdict = self.gate.judge(item.window, None if holding is None else holding.window.index)
        if verdict != "unchanged":
            self._holding = None
        if verdict == "caption" and not is_newest:
            return Outcome(item.window, Trace(), skipped=True)
        if verdict != "caption":
            window, unasked = without_images(item.window), verdict == "unasked"
            self._unasked = item.window if unasked and is_newest else None
            # Only the newest one has its images still.
            faults = flags(item.window) if is_newest else ()
            return Outcome(window, Trace(), flags=faults, holds=self._holding, unasked=unasked)
        outcome = self._caption(item)
        self._holding = outcome.holding
        return outcome

    def _caption(self, item: _Closed) -> Outcome:
        trace = Trace()
        trace.mark("closed", item.closed_ns)
        trace.add("queue", item.complete_ns, time.perf_counter_ns())
        self._captioned = item.window.index
        faults: tuple[str, ...] = ()

        def caption() -> Caption:
            nonlocal faults
            with trace.span("check"):
                faults = flags(item.window)
                trusted = trustworthy(item.window, faults)
            deadline_ns = item.closed_ns + round(self.deadline_s * 1e9) if self.deadline_s else None
            first = partial(self._tell_standing, item.window)
            how = trace, self._tell_words, self._cancel, deadline_ns, first
            return self._decoder.caption(trusted, self.question, *how)

        self._prepare()
        speculates = self._decoder.speculates = not self._is_behind or self._arms.choose()
        begun = time.perf_counter()
        made = tried(caption)
        self._decoder.speculates = True
        if isinstance(made, Exception):
            return Outcome(item.window, trace, error=made, flags=faults)
        if self._is_behind and made.source == "target" and not made.late:
            self._arms.observe(speculates, time.perf_counter() - begun)
        faults = (*faults, *caption_faults(made, self.grammar is not None))
        trace.add("total", item.closed_ns, time.perf_counter_ns())
        if "first_token" in trace.marks:
            trace.add("first_token", item.closed_ns, trace.marks["first_token"])
        return Outcome(item.window, trace, made, faults, cancel=self._cancel)

    def _tell_words(self, text: str) -> None:
        if not self.is_stopped:
            self._on_words(text)

    def _finish(self, outcome: Outcome) -> None:
        if self.is_stopped:
            return
        untold = f"the outcome of window {outcome.window.index} could not be published"
        with failures_logged(_LOG, logging.ERROR, untold):
            self._on_outcome(outcome)
        # Not before: if `stop` does not wait for it, it may fail, and be in nobody's report.
        with self.changed:
            self._unfinished.popleft()


def _log_unread(read: Future[None]) -> None:
    with failures_logged(_LOG, logging.WARNING, _UNREAD):
        if not read.cancelled():
            read.result()


def _deactivated() -> InputError:
    return InputError("the captioner was deactivated: ask again once it is active")
