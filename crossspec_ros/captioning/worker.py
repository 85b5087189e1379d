"""One thread that captions windows: from their last frame on, if it can; the newest closed window wins."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from crossspec_ros.captioning.answer import Cancel
from crossspec_ros.captioning.outcome import (
    Closed,
    Holding,
    Outcome,
    asked_about,
    caption_faults,
    without_images,
)
from crossspec_ros.captioning.question_queue import OnAnswer, Question, cancelled, check_asked, deactivated
from crossspec_ros.captioning.standing import StandingQuestions
from crossspec_ros.captioning.standing_turns import OnStanding, StandingTurns
from crossspec_ros.drafting.arms import Arms
from crossspec_ros.errors import ENDS, LinkError, failures_logged, forget_frames, tried
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.assembler import PATIENCE
from crossspec_ros.windows.change import ChangeGate, Release
from crossspec_ros.windows.grid import WindowGrid
from crossspec_ros.windows.quality import flags, trustworthy
from crossspec_ros.windows.window import EVENTS, FRAMES, Window

if TYPE_CHECKING:
    from crossspec_ros.captioning.caption import Caption
    from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
    from crossspec_ros.captioning.standing import Choices, Told
    from crossspec_ros.engine.json_grammar import GrammarState

_LOG = logging.getLogger(__name__)
_UNREAD = "an image could not be read ahead, its window is read when it closes"

OnDraft = Callable[[int, str, str], None]
"""Takes the index of a window, an unverified text about it, and the source of that text."""


class CaptionWorker:
    """Captions submitted windows in its own thread; every window has exactly one outcome, in order.

    Frames of open windows go to the decoder as the `gate` admits them. With the frame of the `grid`'s last
    slot the answer begins; it is published when the window has closed. While the target is idle it rehearses.
    Questions about the window captioned last are answered when no window waits, then the `standing` ones.
    A caption that is not done `deadline_s` after its window closed is cut short; 0 sets no deadline.
    `question`, `grammar`, `standing`, `deadline_s` and the gate's settings may be changed at any time.
    `on_words` gets the verified text so far, `on_outcome` each window's end, `on_standing` each answer to a
    standing question; threads of the worker and the decoder call them, none after `stop`.
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
        on_standing: OnStanding = lambda *told: None,
        gate: ChangeGate | None = None,
        grid: WindowGrid = WindowGrid(),  # noqa: B008
    ) -> None:
        self._decoder, self._grid = decoder, grid
        self.gate = gate or ChangeGate()
        self.question, self.standing = question, standing
        self.grammar: GrammarState | None = None
        self.deadline_s = deadline_s
        self._on_draft, self._on_words, self._on_outcome = on_draft, on_words, on_outcome
        self._waiting: list[Closed] = []
        # Those that have no outcome yet, without their pixels.
        self._unfinished: deque[Window] = deque()
        # Of these windows an answer can be begun, is in work, or can be prepared.
        self._complete: int | None = None
        self._early: int | None = None
        self._read: int | None = None
        self._questions: deque[Question] = deque()
        # Frames that wait to be read ahead.
        self._unread = 0
        self.turns = StandingTurns(on_standing)
        # The window captioned last, and the newest that was closed; one that waits for a question.
        self._captioned: int | None = None
        self._closed: int | None = None
        self._unasked: Window | None = None
        self._holding: Holding | None = None
        # A window had closed when the caption before was done.
        self._is_behind = False
        self._arms = Arms()
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self.pulse = Pulse("captions")
        self._cancel = Cancel(self.pulse.beat)
        self._thread = self.pulse.start(self._work, "captioner")

    def stream_frame(self, index: int, frame: np.ndarray, stamp_ns: int) -> None:
        """Read this frame (H, W, 3) of the window `index`, which is still open, when there is time."""
        self._stream(index, FRAMES, frame, partial(self._read_ahead, index, frame, stamp_ns))

    def stream_event_image(self, index: int, image: np.ndarray) -> None:
        """Give this event image (H, W, 3) of the window `index`, which is still open, to the event draft."""
        self._stream(index, EVENTS, image, partial(self._draft, index, image))

    def _stream(self, index: int, kind: str, image: np.ndarray, give: Release) -> None:
        with self._changed:
            # An image that comes after its window has closed is in nobody's caption.
            if self._closed is not None and self._closed - PATIENCE < index <= self._closed:
                return
        with failures_logged(_LOG, logging.WARNING, _UNREAD):
            self.gate.stream(index, kind, image, give)

    def _draft(self, index: int, image: np.ndarray) -> None:
        if self._is_behind:
            # Its window may be skipped, and the processor is busy.
            return

        tell = partial(self._tell_draft, index, "event_draft")
        with failures_logged(_LOG, logging.WARNING, "an event image could not be drafted from"):
            self._decoder.stream_event_image(index, image, self.question, tell)

    def _tell_draft(self, index: int, source: str, text: str) -> None:
        if not self._stopping.is_set():
            self._on_draft(index, text, source)

    def _read_ahead(self, index: int, frame: np.ndarray, stamp_ns: int) -> None:
        with failures_logged(_LOG, logging.WARNING, _UNREAD):
            is_last = self._grid.slot(stamp_ns) == self._grid.slots - 1
            read = self._decoder.stream_frame(index, frame, stamp_ns, is_last)
            if read is not None:
                with self._changed:
                    self._unread += 1
                read.add_done_callback(lambda future: self._was_read(index, future))
            elif is_last:
                with self._changed:
                    self._complete = index
                    self._changed.notify()

    def _was_read(self, index: int, future: Future[Any]) -> None:
        with failures_logged(_LOG, logging.WARNING, _UNREAD), self._changed:
            self._unread -= 1
            self._changed.notify()
            if not future.cancelled():
                future.result()
                self._read = index

    def submit(self, window: Window, closed_ns: int) -> None:
        """Caption this window next; `closed_ns` (perf_counter) is when it was announced as closed."""
        with self._changed:
            # A window that will be skipped needs no pixels.
            self._waiting = [replace(item, window=without_images(item.window)) for item in self._waiting]
            self._waiting.append(Closed(window, closed_ns, time.perf_counter_ns()))
            self._unfinished.append(without_images(window))
            self._changed.notify()

    def ask(
        self,
        question: str,
        on_answer: OnAnswer,
        schema: str = "",
        on_words: Callable[[str], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> None:
        """Answer this about the window captioned last, or the first one there will be; see `Question`.

        `on_answer` gets the answer or why there is none, in the worker's thread, in the order of the
        questions. Raises InputError as `check_asked`.
        """
        with self._changed:
            if self._stopping.is_set():
                raise deactivated()
            check_asked(question, schema, sum(not asked.cancel.is_set() for asked in self._questions))
            either = Cancel(self.pulse.beat, cancel)
            self._questions.append(Question(question, on_answer, schema, on_words, either))
            self._changed.notify()

    @property
    def waiting(self) -> int:
        """Number of closed windows that wait to be captioned, or skipped."""
        return len(self._waiting)

    def is_over(self, timeout_s: float = 0.0) -> bool:
        """Whether the thread has ended, or does so within this time."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stop(self, timeout_s: float = 1.0) -> list[Window]:
        """Cancel the window in work, drop those that wait and end the thread if it ends in time.

        Returns the windows that have no outcome, without their images. Questions that wait or are in work are
        answered with that.
        """
        self.pulse.end()
        with self._changed:
            self._stopping.set()
            for cancel in (self._cancel, *(asked.cancel for asked in self._questions)):
                cancel.set()
            self._changed.notify()
        self.is_over(timeout_s)
        while self._questions:
            self._questions.popleft().on_answer(deactivated(), None)
        with self._changed:
            return list(self._unfinished)

    def _work(self) -> None:
        while not self._stopping.is_set():
            with self._changed:
                self._changed.wait_for(self._has_work)
                waiting, self._waiting = self._waiting, []
            with self.pulse.busy():
                self._decoder.grammar = self.grammar
                self._decoder.first = self.standing.first
                for item in waiting:
                    told = tried(partial(self._outcome, item, is_newest=item is waiting[-1]))
                    if isinstance(told, Exception):
                        told = Outcome(item.window, Trace(), error=told)
                    self._finish(told)
                    self.turns.begin(told, self.standing)
                if waiting:
                    self._is_behind = bool(self._waiting)
                    self._decoder.speculates = True
                elif not self._advance() and not self._answer() and not self._choose():
                    self._work_ahead()
        self._decoder.give_up()

    def _has_work(self) -> bool:
        asked = (self.turns and not self._unread) or self._is_asked()
        known = (self._complete, self._early, self._read)
        return bool(self._waiting or asked or self._stopping.is_set() or any(i is not None for i in known))

    def _is_asked(self) -> bool:
        """Test for a question that can be answered, if only because it was cancelled."""
        askable = self._captioned is not None or self._unasked is not None
        return bool(self._questions) and (askable or self._questions[0].cancel.is_set())

    def _advance(self) -> bool:
        """Passes of an answer whose window is still open, until there is other work; False where there is
        none."""
        with self._changed:
            complete, self._complete = self._complete, None
        if complete is None and self._early is None:
            return False
        try:
            if complete is not None:
                self._early = complete
                self._decoder.begin(complete, self.question)
            assert self._early is not None
            if not self._decoder.advance(self._early, self._has_time):
                self._early = None
        except ENDS:
            raise
        except BaseException as error:
            self._early = None
            # Of a link, the caption and the diagnostics tell it.
            if not isinstance(error, LinkError):
                _LOG.warning("an answer is not begun early, but when its window closes: %r", error)
            forget_frames(error)
        return True

    def _has_time(self) -> bool:
        self.pulse.beat()
        return not self._waiting and self._complete is None and not self._stopping.is_set()

    def _work_ahead(self) -> None:
        """Rehearse and prepare for the window of which a frame was read last, until there is other work."""
        with self._changed:
            index, self._read = self._read, None
        if index is None or not self._is_idle():
            return
        tell = partial(self._tell_draft, index, "rehearsal")
        with failures_logged(_LOG, logging.WARNING, "the caption could not be rehearsed"):
            more = self._decoder.work_ahead(index, self.question, self._is_idle, tell)
            with self._changed:
                # Other work comes first. A frame that waits brings the window back once it is read.
                if self._read is None and (more or not (self._unread or self._is_idle())):
                    self._read = index

    def _is_idle(self) -> bool:
        return self._has_time() and not self._unread and not self.turns and not self._is_asked()

    def _answer(self) -> bool:
        """Answer one question; False when there is none, or no window to ask about."""
        with self._changed:
            if not self._is_asked():
                return False
            asked = self._questions[0]
        answer = tried(partial(self._asked, asked))
        with self._changed:
            # `stop` answers what is left, also where it did not wait for this one.
            if self._stopping.is_set():
                return True
            self._questions.popleft()
        with failures_logged(_LOG, logging.ERROR, "an answer could not be told"):
            asked.on_answer(answer, self._captioned)
        return True

    def _asked(self, asked: Question) -> Caption:
        """The answer about the window captioned last, or a newer one that is captioned only now."""
        window, how = self._unasked, (Trace(), asked.on_words, asked.cancel)
        if asked.cancel.is_set():
            raise cancelled()
        self._decoder.grammar = self._decoder.grammars.compiled(asked.schema) if asked.schema else None
        self._decoder.first = ()
        if window is None:
            return self._decoder.ask(asked.text, *how)
        self._decoder.check_question(asked.text)
        faults = flags(window)
        caption = asked_about(self._decoder.caption(trustworthy(window, faults), asked.text, *how), faults)
        self._unasked, self._captioned = None, window.index
        return caption

    def _choose(self) -> bool:
        """Answer the standing questions of a pass; False where none are left, or a frame waits to be read."""
        if not self.turns or self._unread:
            return False
        choices, window = self.turns.take()
        self._tell_standing(window, choices, tried(partial(self._decoder.choose, choices, Trace())))
        return True

    def _tell_standing(self, window: Window, choices: Choices, answers: Told) -> None:
        if not self._stopping.is_set():
            self.turns.tell(window, choices, answers)

    def _outcome(self, item: Closed, is_newest: bool) -> Outcome:
        """Caption this window, unless a newer one waits or it is not to be captioned."""
        index, holding = item.window.index, self._holding
        with self._changed:
            self._closed, self._unasked = index, None
            # The window brings its frames along.
            begun = (self._complete, self._early)
            self._complete, self._early = (None if one == index else one for one in begun)
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

    def _caption(self, item: Closed) -> Outcome:
        trace = Trace()
        trace.mark("closed", item.closed_ns)
        trace.add("queue", item.complete_ns, time.perf_counter_ns())
        self._captioned = item.window.index
        faults: tuple[str, ...] = ()

        def look() -> Caption:
            nonlocal faults
            with trace.span("check"):
                faults = flags(item.window)
                seen = trustworthy(item.window, faults)
            deadline_ns = item.closed_ns + round(self.deadline_s * 1e9) if self.deadline_s else None
            first = partial(self._tell_standing, item.window)
            how = trace, self._tell_words, self._cancel, deadline_ns, first
            return self._decoder.caption(seen, self.question, *how)

        speculates = self._decoder.speculates = not self._is_behind or self._arms.choose()
        begun = time.perf_counter()
        caption = tried(look)
        if isinstance(caption, Exception):
            return Outcome(item.window, trace, error=caption, flags=faults)
        if self._is_behind and caption.source == "target" and not caption.late:
            self._arms.observe(speculates, time.perf_counter() - begun)
        faults = (*faults, *caption_faults(caption, self._decoder.grammar is not None))
        trace.add("total", item.closed_ns, time.perf_counter_ns())
        if "first_token" in trace.marks:
            trace.add("first_token", item.closed_ns, trace.marks["first_token"])
        return Outcome(item.window, trace, caption, faults, cancel=self._cancel)

    def _tell_words(self, text: str) -> None:
        if not self._stopping.is_set():
            self._on_words(text)

    def _finish(self, outcome: Outcome) -> None:
        if self._stopping.is_set():
            return
        untold = f"the outcome of window {outcome.window.index} could not be told"
        with failures_logged(_LOG, logging.ERROR, untold):
            self._on_outcome(outcome)
        # Not before: where `stop` does not wait for it, it may fail, and be in nobody's report.
        with self._changed:
            self._unfinished.popleft()
