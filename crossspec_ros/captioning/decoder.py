"""Caption windows: the target prefills frames as they arrive, and verifies the answer tree by tree.

The captioner calls `stream_frame` and `stream_event_image` for an open window, and `begin` after its last
frame. It calls `caption` after the close. `ask` and `choose` then answer further questions.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from crossspec_ros.captioning.answer import Answer, Stop
from crossspec_ros.captioning.caption import Caption, OnText, Options, Rehearsal, check_question
from crossspec_ros.captioning.live_windows import OPEN_WINDOWS, LiveWindow, LiveWindows
from crossspec_ros.captioning.standing import Choices, OnAnswered, Standing, shared_passes
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import Context
from crossspec_ros.engine.json_grammar import GrammarCompiler
from crossspec_ros.engine.protocols import Engine
from crossspec_ros.errors import InputError, LinkError, failures_logged, forget_frames
from crossspec_ros.settings import REHEARSAL
from crossspec_ros.telemetry.pulse import Pulse, waited
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.assembler import MAX_IMAGES
from crossspec_ros.windows.window import Window

if TYPE_CHECKING:
    # A robot with a remote target and without an event draft needs no torch.
    from crossspec_ros.drafting.draft_model import DraftModel
    from crossspec_ros.drafting.memory_file import MemoryFile
    from crossspec_ros.models.pair import ModelPair

_LOG = logging.getLogger(__name__)


class PrefillHiddenDecoder:
    """Prefills windows while they are open, and captions them once they close.

    `stream_frame`, `stream_event_image` and `begin` never block. A single thread calls `caption`, `ask`,
    `choose`, `forget` and `give_up`. Engine and draft have their own threads, and proposers run in the
    engine's thread. `on_rehearsal` gets a window's index and the text of each complete rehearsal.
    """

    def __init__(
        self, pair: ModelPair, policy: Policy, engine: Engine | None = None, owns_engine: bool = False
    ) -> None:
        self.pair, self.policy = pair, policy
        self.on_rehearsal: Callable[[int, str], None] = lambda index, text: None
        self._owns_engine = engine is None or owns_engine
        if engine is None:
            from crossspec_ros.engine.local import LocalEngine

            engine = LocalEngine(pair.target)
        self.engine = engine
        # `LiveWindow.begun` compares these objects by identity, so equal settings must return the same ones.
        self.grammar = lru_cache(maxsize=8)(GrammarCompiler(pair.target, engine).compiled)
        self._standing = lru_cache(maxsize=1)(partial(shared_passes, target=pair.target, engine=engine))
        self._drafts: DraftModel | None = None
        if pair.draft is not None:
            from crossspec_ros.drafting.draft_model import DraftModel

            self._drafts = DraftModel(pair.draft, pair.translation)
        event_images = pair.draft.event_images if pair.draft else 0
        self._live = LiveWindows(event_images, self._open, self._drop)
        # Setting this event stops the newest draft. All older drafts have been stopped.
        self._stop_draft = threading.Event()
        # The last captioned window. Its frames stay prefilled for further questions.
        self._last: LiveWindow | None = None
        self._is_blind = True
        """Whether the last window had no usable frames. The next one may then have none either."""
        self._is_closed = False
        self.memory_file: MemoryFile | None = None
        """File of the caption memory, if any; `close` closes it."""

    @property
    def pulses(self) -> tuple[Pulse, ...]:
        """Pulses of the decoder's threads."""
        others = [part.pulse for part in (self._drafts, self.memory_file) if part is not None]
        return (*self.engine.pulses, *others)

    def alone(self) -> PrefillHiddenDecoder:
        """Return a decoder without drafting on the same engine. Close it before this one."""
        pair = replace(self.pair, draft=None, translation=None)
        return PrefillHiddenDecoder(pair, Policy((), None), self.engine)

    def stream_frame(
        self,
        index: int,
        frame: np.ndarray,
        stamp_ns: int,
        is_last: bool = False,
        rehearsed: Options | None = None,
    ) -> Future[None] | None:
        """Queue the next (H, W, 3) uint8 RGB frame of the open window `index` for prefill; return its future.

        From now on the target rehearses the window with the options `rehearsed`, if set. The last frame has
        no future, because the target prefills it together with the question, see `begin`. If a prefill
        fails, `caption` prefills the window again.
        """
        live = self._live.add_frame(index, frame, stamp_ns)
        live.rehearsed = rehearsed
        if is_last:
            live.last_frame_ns = time.perf_counter_ns()
            return None
        return self.engine.add_frame(live.handle, frame, stamp_ns)

    def stream_event_image(
        self, index: int, image: np.ndarray, options: Options, on_draft: OnText = None
    ) -> Future[None] | None:
        """Add the next (H, W, 3) uint8 RGB event image of the open window `index`.

        The event draft begins with the last image but one, so that it ends before the window closes. It does
        not begin if the target rehearses on the same device, because both would compete. `on_draft` gets the
        text of a finished draft, in the draft's thread. An unfinished draft stops with the caption at the
        latest, and its tokens so far are proposed. Returns the draft's future once it has begun.
        """
        if self._drafts is None:
            return None
        live = self._live.get(index)
        if live.draft is None and len(live.event_images) < MAX_IMAGES:
            live.event_images.append(image)
            if self._live.can_draft(live) and not self._rehearses(live):
                self._stop_draft.set()
                self._stop_draft = live.stop_draft
                images = np.stack(live.event_images)
                live.draft = self._drafts.draft(images, options.question, options.max_new_tokens)
                live.drafting = self._drafts.start(live.draft, live.trace, live.stop_draft.is_set, on_draft)
        return live.drafting

    def begin(self, index: int, options: Options) -> None:
        """Begin the answer about the open window `index`, which has all its frames.

        `caption` uses the answer if frames and options are the same.
        """
        live = self._live.find(index)
        if live is not None and live.frames and live.answer is None:
            self._answer(live, options, self.policy)

    def give_up(self) -> None:
        """Release all windows. The engine cancels their answers."""
        self._live.clear()
        self.forget()

    def forget(self) -> None:
        """Release the last captioned window, which then accepts no further questions."""
        last, self._last = self._last, None
        if last is not None:
            self._drop(last)

    def caption(
        self,
        window: Window,
        options: Options,
        trace: Trace,
        on_words: OnText = None,
        cancel: threading.Event | None = None,
        deadline_ns: int | None = None,
        on_first: OnAnswered = lambda answers: None,
        speculates: bool = True,
    ) -> Caption:
        """Caption a closed window. `trace` gets a span per stage, including those before the close.

        Args:
            on_words: gets the verified text so far, in the engine's thread or in the caller's.
            cancel: once set, cuts the caption after the current pass.
            deadline_ns: cuts the caption after this time (`perf_counter_ns`). The caption is then `late`.
            on_first: gets the answers to the standing questions `options.first`, before the caption.
            speculates: whether to draft the answer, unless `begin` has begun it.
        """
        begun_ns, stop = time.perf_counter_ns(), Stop(cancel, deadline_ns)
        # The last window is released first, so that this one can use its buffers.
        self.forget()
        self._is_blind = not len(window.frames)
        live = self._live.close(window)
        event_caption = partial(self._drafted, live, window, options, stop)
        try:
            if not len(window.frames):
                return event_caption()
            live.frames, live.stamps_ns = list(window.frames), list(window.frame_stamps_ns)
            answer = live.begun(options)
            if answer is not None:
                begun_ns = live.last_frame_ns
            else:
                policy = self.policy if speculates else Policy((), self.policy.cost)
                answer = self._answer(live, options, policy)
            for choices, scores in live.first:
                on_first(choices.answered(scores))
            caption = self._finish(live, answer, live.trace, stop, on_words)
            live.trace.add("answer_first", begun_ns, answer.first_ns)
            live.trace.add("answer", begun_ns, answer.ended_ns)
            rehearsal, live.rehearsal = live.rehearsal, Rehearsal()
            return replace(caption, rehearsal=rehearsal)
        except LinkError as error:
            if self._drafts is None or not len(window.event_images):
                raise
            forget_frames(error)
            return replace(event_caption(), unreached=str(error))
        finally:
            live.stop_draft.set()
            if self._last is not live:
                self._drop(live)
            trace.extend(live.trace)

    def ask(
        self, options: Options, trace: Trace, on_words: OnText = None, cancel: threading.Event | None = None
    ) -> Caption:
        """Answer a further question about the last captioned window, whose frames stay prefilled.

        Raises InputError without such a window, and for an invalid question.
        """
        self.check_question(options.question)
        live = self._askable()
        answer = self._new_answer(live, options, self.policy, trace)
        self.engine.ask(live.handle, answer, live.frames_so_far)
        return self._finish(live, answer, trace, Stop(cancel), on_words)

    def standing(self, questions: Sequence[Standing]) -> tuple[tuple[Choices, ...], tuple[Choices, ...]]:
        """Pack standing questions into passes; return the passes before a caption and those for `choose`.

        Raises InputError for an invalid question.
        """
        return self._standing(tuple(questions))

    def choose(self, choices: Choices, trace: Trace, on_answered: OnAnswered) -> None:
        """Queue standing questions about the last captioned window. The target answers when it has time.

        The engine prefills all queued frames first. `on_answered` gets the answers or errors in the engine's
        thread. Raises InputError without a captioned window.
        """
        live = self._askable()
        scores = self.engine.score(live.handle, choices.tree, trace, live.frames_so_far, can_wait=True)
        scores.add_done_callback(lambda done: on_answered(choices.answered(done)))

    def check_question(self, question: str) -> None:
        """Raise InputError for a question that is empty or too long for the target."""
        check_question(self.pair.target, question)

    def warm_up(self) -> None:
        """Allocate all buffers, capture all graphs, and run each kind of pass once."""
        # The last captioned window keeps its buffers, too.
        self.engine.warm_up(OPEN_WINDOWS + 1)
        if self._drafts is not None:
            self._drafts.warm_up()

    def close(self) -> None:
        """End the draft's thread, and the engine if this decoder owns it. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        # In this order backwards. A failure of one part does not skip the others.
        with ExitStack() as stack:
            if self.memory_file is not None:
                stack.callback(self.memory_file.close)
            if self._owns_engine:
                stack.callback(self.engine.close)
            if self._drafts is not None:
                stack.callback(self._drafts.close)
            self.give_up()

    def _answer(self, live: LiveWindow, options: Options, policy: Policy) -> Answer:
        """Queue the standing questions `options.first` and then the caption's answer, which is returned."""
        handle, frames = live.handle, live.frames_so_far
        self.engine.cancel(handle)
        live.first = [
            (choices, self.engine.score(handle, choices.tree, live.trace, frames))
            for choices in options.first
        ]
        answer = self._new_answer(live, options, policy, live.trace)
        live.answer, live.answered = answer, (options, frames[1])
        self.engine.ask(handle, answer, frames)
        return answer

    def _drafted(
        self, live: LiveWindow, window: Window, options: Options, stopped: Callable[[], bool]
    ) -> Caption:
        """Return the event draft's caption of a closed window. It is late if `stopped` cut it."""
        live.stop_draft.set()
        # The stopped draft must not slow the target any more.
        if live.drafting is not None and not live.drafting.cancel():
            waited(live.drafting)
        if not len(window.event_images) or self._drafts is None:
            return Caption("", (), "none")
        draft, is_finished = live.draft, True
        lacks_images = len(live.event_images) < len(window.event_images) - 1
        if draft is None or not draft.ended or lacks_images or draft.question != options.question:
            self._stop_draft.set()
            draft = self._drafts.draft(window.event_images, options.question, options.max_new_tokens)
            is_finished = waited(self._drafts.submit(draft.run, live.trace, stopped))
        return Caption(draft.text, tuple(draft.tokens), "event_draft", late=not is_finished)

    def _new_answer(self, live: LiveWindow, options: Options, policy: Policy, trace: Trace) -> Answer:
        # On the same device, the event draft would slow the answer.
        if self._drafts_on_target:
            live.stop_draft.set()
        context = self._context(options)
        return Answer(live, context, policy, trace, options.max_new_tokens, options.sampling)

    @property
    def _drafts_on_target(self) -> bool:
        return self._drafts is not None and str(self._drafts.model.device) == str(self.pair.target.device)

    def _rehearses(self, live: LiveWindow) -> bool:
        """Return whether the target rehearses an open window on the device of the event draft."""
        is_rehearsed = live.rehearsed is not None and self.policy.has(REHEARSAL)
        return is_rehearsed and self._drafts_on_target and not self._is_blind

    def _rehearsal(self, live: LiveWindow) -> Answer | None:
        """Return the rehearsal of an open window. The engine's thread calls this."""
        options = live.rehearsed
        if options is None or live.answer is not None:
            return None
        context = self._context(options)
        answer = Answer(live, context, self.policy, live.trace, options.max_new_tokens, is_rehearsal=True)
        answer.future.add_done_callback(lambda done: self._publish_rehearsal(live, answer))
        return answer

    def _publish_rehearsal(self, live: LiveWindow, answer: Answer) -> None:
        if answer.ended:
            with failures_logged(_LOG, logging.WARNING, "failed to publish a rehearsal"):
                self.on_rehearsal(live.index, self._text(answer))

    def _finish(
        self, live: LiveWindow, answer: Answer, trace: Trace, stop: Stop, on_words: OnText = None
    ) -> Caption:
        """Wait until the answer ends or is cut, and publish its words meanwhile."""
        published, lock = 0, threading.Lock()

        def publish(answer: Answer) -> None:
            nonlocal published
            trace.mark("first_token")
            # The engine's thread may publish the next words at the same time.
            with lock, failures_logged(_LOG, logging.ERROR, "failed to publish words"):
                if on_words and published < len(answer.tokens):
                    published = len(answer.tokens)
                    with trace.span("tell"):
                        on_words(self._text(answer))

        answer.stop, answer.on_step = stop, publish
        if answer.tokens:
            publish(answer)
        waited(answer.future)
        self._last = live
        return answer.caption(self._text(answer))

    def _text(self, answer: Answer) -> str:
        # A target on another host sends the text.
        text = answer.last.text if answer.last is not None else None
        return self.pair.target.tokenizer.decode(answer.tokens).strip() if text is None else text

    def _askable(self) -> LiveWindow:
        if self._last is None:
            raise InputError("no window with frames has been captioned yet: ask again after the next caption")
        return self._last

    def _open(self, live: LiveWindow) -> Any:
        return self.engine.open(live.index, live.trace, plan=lambda: self._rehearsal(live))

    def _drop(self, live: LiveWindow) -> None:
        """Release the engine's resources of a window."""
        # Window and answer reference each other, which would keep the embeddings of the frames in memory.
        live.answer = None
        self.engine.drop(live.handle)

    def _context(self, options: Options) -> Context:
        return Context(options.question, grammar=options.grammar.copy() if options.grammar else None)
