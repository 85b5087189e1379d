"""One window to one caption: frames are prefilled as they come, and the answer is verified tree by tree.

A window's life: `stream_frame` and `stream_event_image` while it is open, `work_ahead` in idle time, `begin`
and `advance` after its last frame, `caption` after its close, then further questions (`ask`, `choose`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from crossspec_ros.captioning.answer import Answer, Stop, drafted_context
from crossspec_ros.captioning.caption import Caption, check_question
from crossspec_ros.captioning.last_window import LastWindow
from crossspec_ros.captioning.open_windows import OPEN_WINDOWS, EventDrafts, OpenWindows, draft_model
from crossspec_ros.captioning.standing import Answered, Choices, OnFirst, Standing, StandingQuestions
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import REHEARSAL, Context, PassResult
from crossspec_ros.engine.json_grammar import GrammarCompiler, GrammarState
from crossspec_ros.engine.session import Engine
from crossspec_ros.errors import LinkError, forget_frames, tried
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

if TYPE_CHECKING:
    # A robot whose target is elsewhere, and which has no event draft, needs no torch.
    from crossspec_ros.captioning.open_windows import OpenWindow, StandIn
    from crossspec_ros.drafting.draft_model import DraftModel
    from crossspec_ros.drafting.memory_file import MemoryFile
    from crossspec_ros.engine.sampling import Sampling
    from crossspec_ros.models.pair import ModelPair


class PrefillHiddenDecoder:
    """Reads windows while they are open and captions them once they close.

    `stream_frame` and `stream_event_image` never wait, and come from one thread. All else, the policy and its
    proposers included, is for one captioning thread; a second one waits its turn. Engine and draft have
    threads of their own. A `handoff`, which is lossy, lets event features stand in for frames.
    `max_new_tokens` and `sampling` may be changed at any time, and between two calls the `grammar` that
    captions and answers follow, what is asked `first` about each window, and whether it `speculates`: else
    the target answers alone.
    """

    def __init__(
        self,
        pair: ModelPair,
        policy: Policy,
        max_new_tokens: int = 64,
        sampling: Sampling | None = None,
        engine: Engine | None = None,
        owns_engine: bool = False,
        drafts: DraftModel | None = None,
        handoff: StandIn | None = None,
    ) -> None:
        self.pair, self.policy, self._handoff = pair, policy, handoff
        self.max_new_tokens, self.sampling = max_new_tokens, sampling
        self.grammar: GrammarState | None = None
        self.first: tuple[Choices, ...] = ()
        self.speculates = True
        self._owns_engine = engine is None or owns_engine
        if engine is None:
            from crossspec_ros.engine.local import LocalEngine

            engine = LocalEngine(pair.target)
        self.engine = engine
        self.grammars = GrammarCompiler(pair.target, engine)
        self._drafts = drafts = drafts or draft_model(pair)
        self._turn = threading.RLock()
        self._open = OpenWindows(engine, pair.event_images)
        self._event_drafts = EventDrafts(pair, drafts, self._open, handoff)
        self._last = LastWindow()
        self._started: int | None = None
        self._lesson: PassResult | None = None
        self._is_closed = False
        self.memory_file: MemoryFile | None = None
        """Closed with the decoder."""

    @property
    def pulses(self) -> tuple[Pulse, ...]:
        """Pulses of the threads that it owns."""
        others = [part.pulse for part in (self._drafts, self.memory_file) if part is not None]
        return (*self.engine.pulses, *others)

    def alone(self) -> PrefillHiddenDecoder:
        """The target alone, on the same engine; to be closed before this one."""
        pair = replace(self.pair, draft=None, translation=None)
        return PrefillHiddenDecoder(pair, Policy((), None), self.max_new_tokens, engine=self.engine)

    def stream_frame(
        self, index: int, frame: np.ndarray, stamp_ns: int, is_last: bool = False
    ) -> Future[None] | None:
        """Encode and read the next (H, W, 3) uint8 RGB frame of the open window `index` when there is time.

        The last of the window is read together with the question instead, see `begin`; and so are those for
        which event features may yet stand in. Should it fail, its window is read when it closes.
        """
        opened = self._open.add_frame(index, frame, stamp_ns)
        if is_last:
            opened.last_frame_ns = time.perf_counter_ns()
        elif self._handoff is None or self._handoff.reads_ahead(len(opened.frames) - 1):
            # A window that was dropped meanwhile has no session any more.
            session = opened.session
            return session.append(frame, stamp_ns) if session is not None else None
        return None

    def stream_event_image(
        self, index: int, image: np.ndarray, question: str, on_draft: Callable[[str], None] | None = None
    ) -> Future[None] | None:
        """Take the next (H, W, 3) uint8 RGB event image of the open window `index`.

        `on_draft` gets the draft's text, in the draft's thread; a draft that is not done in time is dropped.
        Returns the draft's work once it has begun.
        """
        return self._event_drafts.take(index, image, question, self.max_new_tokens, on_draft)

    def work_ahead(
        self,
        index: int,
        question: str,
        more: Callable[[], bool] = lambda: True,
        on_rehearsal: Callable[[str], None] = lambda text: None,
    ) -> bool:
        """Use idle time for the open window `index`: rehearse its caption, and let proposers prepare.

        A rehearsal stops after a pass where `more()` is false, and when a frame comes; what is written then
        is a draft all the same. `on_rehearsal` gets the text of one that came to its end. Returns whether
        there is more to do, when there is time again.
        """
        with self._turn:
            self._learn()
            opened = self._open.find(index)
            if opened is None or opened.answer is not None:
                return False
            self._start_policy(index)
            can_rehearse = self._handoff is None and self.engine.rehearses and self.policy.has(REHEARSAL)
            if can_rehearse and opened.needs_rehearsal(self.pair.target.spec):
                answer = self._rehearse(opened, question, more)
                if answer.ended:
                    on_rehearsal(self._text(answer))
                return answer.ended
            frames = opened.session.frames if opened.session is not None else ()
            return self.policy.prepare(drafted_context(self._context(question), opened.draft, frames))

    def _rehearse(self, opened: OpenWindow, question: str, more: Callable[[], bool]) -> Answer:
        assert opened.session is not None
        units, before = len(opened.session.frames), opened.rehearsal
        context = replace(self._context(question), rehearsal=before.token_ids)
        ours = opened.session, self.policy, opened.draft, context, opened.trace
        answer = Answer(*ours, self.max_new_tokens, None, is_rehearsal=True)
        opened.rehearsal = answer.rehearse(before, lambda: more() and self._open.find(opened.index) is opened)
        opened.rehearsed = units if answer.ended else opened.rehearsed
        return answer

    def begin(self, index: int, question: str) -> None:
        """Begin the answer about the window `index`, which is still open, but has got all its frames.

        `advance` works on it until the window closes. `caption` then uses it, if frames and question are the
        same.
        """
        with self._turn:
            opened = self._open.find(index)
            if opened is None or opened.session is None or opened.answer is not None:
                return
            # More may come meanwhile; then the answer is not about all of them.
            stamps_ns = list(opened.stamps_ns)
            fit = partial(self._event_drafts.fit, opened, opened.frames[: len(stamps_ns)], stamps_ns)
            try:
                opened.answer = self._caption_answer(opened, self._context(question), fit)
            except BaseException:
                opened.give_up()
                raise
            opened.answered_ns = stamps_ns

    def advance(self, index: int, more: Callable[[], bool] = lambda: False) -> bool:
        """Make one more pass of the answer that was begun, and others as long as `more()` says so.

        Returns whether there is more to do. `more` is asked mostly in the engine's thread.
        """
        with self._turn:
            opened = self._open.find(index)
            answer = opened.answer if opened else None
            if opened is None or answer is None or answer.ended:
                return False
            try:
                answer.advance(lambda: more() and self._open.find(index) is opened)
            except BaseException:
                opened.give_up()
                raise
            if answer.ended:
                opened.rest()
            return not answer.ended

    def give_up(self) -> None:
        """Drop the answers that were begun: nobody waits for them, and frames need not."""
        with self._turn:
            for opened in self._open.answered():
                opened.give_up()

    def forget(self) -> None:
        """Give back what is held of the window captioned last; nobody will ask about it."""
        with self._turn:
            self._last.forget()

    def caption(
        self,
        window: Window,
        question: str,
        trace: Trace,
        on_words: Callable[[str], None] | None = None,
        cancel: threading.Event | None = None,
        deadline_ns: int | None = None,
        on_first: OnFirst = lambda *told: None,
    ) -> Caption:
        """Caption a window that has closed; every stage, also from before the close, is a span of `trace`.

        Args:
            on_words: gets the verified text so far after each pass, mostly in the engine's thread.
            cancel: once set, the caption is cut short after the pass in flight.
            deadline_ns: likewise once `time.perf_counter_ns` is past it; the caption is then `late`.
            on_first: gets the answers to what is asked first, before the caption is made.
        """
        with self._turn:
            begun_ns, stop = time.perf_counter_ns(), Stop(cancel, deadline_ns)
            opened = self._open.close(window)
            self.forget()
            # Beside the target it goes on, unless it would take the CPU from it.
            if self._event_drafts.is_on_cpu or not len(window.frames):
                opened.end_draft()
            try:
                if not len(window.frames) and (self._handoff is None or not len(window.event_images)):
                    return self._event_drafts.caption(opened, window, question, self.max_new_tokens, stop)
                early, answer = opened.answer, self._begun(opened, window, question)
                for told in opened.first:
                    on_first(*told)
                caption = self._finish(opened, answer, opened.trace, stop, on_words)
                begun_ns = opened.last_frame_ns if answer is early else begun_ns
                opened.trace.add("answer_first", begun_ns, answer.first_ns)
                opened.trace.add("answer", begun_ns, answer.ended_ns)
                return replace(caption, rehearsal=opened.rehearsal)
            except LinkError as error:
                if self._drafts is None or not len(window.event_images):
                    raise
                forget_frames(error)
                alone = self._event_drafts.caption(opened, window, question, self.max_new_tokens, stop)
                return replace(alone, unreached=str(error))
            finally:
                opened.stop.set()
                self._last.settle(opened)
                trace.extend(opened.trace)

    def ask(
        self,
        question: str,
        trace: Trace,
        on_words: Callable[[str], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> Caption:
        """Answer a further question about the window captioned last, whose frames stay read; as `caption`.

        Raises InputError where that had no frames, or there was none; or as `check_question`.
        """
        self.check_question(question)
        with self._turn, self._last.asked() as opened:
            self._learn()
            answer = self._answer(opened, self._context(question), trace)
            return self._finish(opened, answer, trace, Stop(cancel), on_words)

    def standing(self, questions: Sequence[Standing]) -> StandingQuestions:
        """Standing questions, ready to be `first` and for `choose`; InputError where one cannot be asked."""
        return StandingQuestions.of(questions, self.pair.target, self.engine)

    def choose(self, choices: Choices, trace: Trace) -> tuple[Answered, ...]:
        """Answer standing questions about the window captioned last; raises InputError as `ask` does."""
        with self._turn, self._last.asked() as opened:
            self._learn()
            answered = choices.answer(opened.session, opened.source, trace)
            self._last.keep(opened)
            opened.rest()
            return answered

    def check_question(self, question: str) -> None:
        """Raise InputError for a question that the target cannot take."""
        check_question(self.pair.target, question)

    def warm_up(self, with_target: bool = True, with_draft: bool = True) -> None:
        """Take all buffers, capture all graphs, and do what is slow the first time."""
        if with_target:
            # For those that are open and the last one.
            self.engine.warm_up(OPEN_WINDOWS + 1)
        if with_draft and self._drafts is not None:
            self._drafts.warm_up()

    def close(self) -> None:
        """End the threads of draft and engine; a second time does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._open.stop_drafts()
        if self._drafts is not None:
            self._drafts.close()
        with self._turn:
            self._learn()
            self.forget()
            self._open.clear()
            if self._owns_engine:
                self.engine.close()
            if self.memory_file is not None:
                self.memory_file.close()

    def _begun(self, opened: OpenWindow, window: Window, question: str) -> Answer:
        """The answer that was begun before the close, or a new one where it was about something else."""
        frames, stamps_ns = list(window.frames), list(window.frame_stamps_ns)
        context = self._context(question)
        asked = self.first, context.subject, self.max_new_tokens, self.sampling
        if answer := opened.begun(stamps_ns, *asked):
            return answer
        if opened.session is None:
            opened.session = self.engine.open(opened.index, opened.trace)
        fit = partial(self._event_drafts.fit, opened, frames, stamps_ns, window.event_images)
        return self._caption_answer(opened, context, fit)

    def _caption_answer(
        self, opened: OpenWindow, context: Context, fit: Callable[[], Future[None]]
    ) -> Answer:
        """The answer of a caption, after what comes first; `fit` gives its session the frames, and proposers
        that look at frames are asked once these are encoded."""
        self._learn()
        fitted = fit()
        if self.policy.needs("frames"):
            fitted.result()
        opened.first = []
        for choices in self.first:
            told = tried(partial(choices.answer, opened.session, opened.source, opened.trace))
            opened.first.append((choices, told))
            if isinstance(told, Exception):
                fit()
        context = replace(context, rehearsal=opened.rehearsal.token_ids)
        return self._answer(opened, context, opened.trace)

    def _start_policy(self, index: int) -> None:
        if self._started != index:
            self._started = index
            self.policy.start(index)

    def _answer(self, opened: OpenWindow, context: Context, trace: Trace) -> Answer:
        self._start_policy(opened.index)
        assert opened.session is not None
        self._event_drafts.give_way(opened, self.policy.draft_pays)
        policy = self.policy if self.speculates else Policy((), self.policy.cost)
        ours = opened.session, policy, opened.draft, context, trace
        return Answer(*ours, self.max_new_tokens, self.sampling)

    def _finish(
        self,
        opened: OpenWindow,
        answer: Answer,
        trace: Trace,
        stop: Stop,
        on_words: Callable[[str], None] | None = None,
    ) -> Caption:
        """Advance the answer to its end, or until it is cut short; from now on its words are told."""

        def tell() -> None:
            trace.mark("first_token")
            if on_words:
                with trace.span("tell"):
                    on_words(self._text(answer))

        answer.finish(stop, tell)
        opened.rest()
        # Told later, to save time; what an answer between taught must not get lost.
        self._learn()
        self._lesson = answer.take_lesson()
        self._last.keep(opened)
        return answer.caption(self._text(answer), opened.source, stop.is_late)

    def _text(self, answer: Answer) -> str:
        # A target on another host sends its text.
        text = answer.last.text if answer.last is not None else None
        return self.pair.target.tokenizer.decode(answer.tokens).strip() if text is None else text

    def _learn(self) -> None:
        """Tell the policy how the last pass ended; that of a caption is told later, to save time."""
        lesson, self._lesson = self._lesson, None
        if lesson is not None:
            self.policy.observe(lesson)
            self.policy.finish()

    def _context(self, question: str) -> Context:
        grammar = self.grammar.copy() if self.grammar else None
        return Context(question, prompt_ids=self.pair.target.prompt_ids(question)[1], grammar=grammar)
