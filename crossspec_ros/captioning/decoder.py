"""One window to one caption: frames are read as they come, and the answer is verified tree by tree.

Whatever the proposers guess, the caption is the target's own (docs/decoding.md).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

import numpy as np
import torch

from crossspec_ros.captioning.caption import Caption
from crossspec_ros.captioning.open_windows import OPEN_WINDOWS, OpenWindow, OpenWindows
from crossspec_ros.drafting.cost import VerifyCost
from crossspec_ros.drafting.draft_model import DraftModel
from crossspec_ros.drafting.event_draft import EventDraft
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import Context, Outcome
from crossspec_ros.drafting.stored_draft import Said, StoredDraft
from crossspec_ros.engine.accept import greedy_path
from crossspec_ros.engine.frame_features import digest
from crossspec_ros.engine.sampling import LazyRows, Sampling, sample_path
from crossspec_ros.engine.session import TargetSession
from crossspec_ros.engine.target_model import TargetModel
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.errors import InputError
from crossspec_ros.models.loading import ModelPair
from crossspec_ros.models.prompts import target_prompt_ids
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

_LOG = logging.getLogger(__name__)

_ANSWER_ROOM, _MOST_QUESTION = 64, 10_000
_NOISE_QUESTION, _WARM_UP_TOKENS = "What is this?", 8


class PrefillHiddenDecoder:
    """Reads windows while they are open and captions them once they close; owns the draft's thread.

    `stream_frame`, `caption` and `ask` are meant for one thread; where a second comes, it waits its turn.
    `stream_event_image` never waits. With an empty policy it is the target alone. `max_new_tokens` may be
    changed at any time, and so may `sampling`, which the next caption or answer follows. `is_static` is that
    of `engine.runner.Reader`; by default, as the device wants it. Where `said` has what the draft said
    beforehand, by the digests of event images, it is not asked again.
    """

    def __init__(
        self,
        pair: ModelPair,
        policy: Policy,
        max_new_tokens: int = 64,
        sampling: Sampling | None = None,
        is_static: bool | None = None,
        said: Mapping[bytes, Said] | None = None,
    ) -> None:
        self.pair, self.policy, self.sampling, self._stored = pair, policy, sampling, said
        self.max_new_tokens = max_new_tokens
        self._event_images = pair.event_images
        self._turn = threading.RLock()
        # That of the caption in work, and the generator of a seed.
        self._sampling = sampling
        self._draws: tuple[int, torch.Generator] | None = None
        self._target = TargetModel(pair, is_static)
        self._draft = DraftModel(pair, is_static)
        self._open = OpenWindows()
        self._last: OpenWindow | None = None
        self._lesson: Outcome | None = None
        self.at_close: Callable[[], object] = lambda: None
        """Called when the decoder closes."""

    @property
    def pulses(self) -> tuple[Pulse, ...]:
        """Of the threads that it owns."""
        return (self._draft.pulse,)

    @torch.inference_mode()
    def stream_frame(self, index: int, frame: np.ndarray) -> None:
        """Encode and prefill the next (H, W, 3) uint8 RGB frame of the open window `index`."""
        with self._turn, self._target.lane():
            self._learn()
            stream = self._open.get(index)
            session = stream.session or TargetSession(self._target, stream.trace)
            # Should it fail half way, the window is read anew when it closes.
            stream.session = None
            session.append_frame(frame)
            session.prefill()
            stream.session = session
            if stream.draft is not None and stream.running is not None and stream.running.done():
                # What the proposers look up now they know when the window closes.
                self.policy.propose(
                    _context(stream.draft.question, session, stream.draft), 1, self.max_new_tokens
                )

    def stream_event_image(
        self, index: int, image: np.ndarray, question: str, on_draft: Callable[[str], None] | None = None
    ) -> Future[None] | None:
        """Take the next (H, W, 3) uint8 RGB event image of the open window `index`.

        All but the last are enough for the event draft to start, so that it is done when the window closes;
        how many there will be is taken from the window before.
        `on_draft` gets its text, in the draft's thread; a draft that is not done in time is dropped.
        Returns the draft's work once it has begun.
        """
        stream = self._open.get(index)
        stream.event_images.append(image)
        if len(stream.event_images) == max(1, self._event_images - 1) and stream.draft is None:
            self._open.stop_drafts()
            stream.draft = self._event_draft(np.stack(stream.event_images), question)
            stream.running = self._draft.submit(
                self._run_draft, stream.draft, stream.trace, on_draft, stream.stop.is_set
            )
        return stream.running

    def caption(
        self,
        window: Window,
        question: str,
        trace: Trace,
        on_words: Callable[[str], None] | None = None,
        between: Callable[[], object] | None = None,
        cancel: threading.Event | None = None,
        deadline_ns: int | None = None,
    ) -> Caption:
        """Caption a window that has closed; every stage, also from before the close, is a span of `trace`.

        Args:
            on_words: gets the verified text so far after each pass.
            between: is called between passes; there the next window may be streamed.
            cancel: once set, the caption is cut short after the pass in flight.
            deadline_ns: likewise once `time.perf_counter_ns` is past it; the caption is then `late`.
        """
        with self._turn:
            stream = self._open.close(window.index)
            self._last = None
            # Beside the target it goes on, unless it would take the CPU from it.
            if self.pair.target.device.type == self.pair.draft.device.type == "cpu" or not len(window.frames):
                stream.end_draft()
            self._event_images = len(window.event_images) or self._event_images
            try:
                if not len(window.frames):
                    return self._draft_alone(stream, window, question, cancel, deadline_ns)
                with torch.inference_mode(), self._target.lane():
                    self._complete(stream, window)
                    caption = self._answer(
                        stream, question, stream.trace, on_words, between, cancel, deadline_ns
                    )
                self._last = stream
                return caption
            finally:
                stream.stop.set()
                trace.extend(stream.trace)

    def ask(
        self,
        question: str,
        trace: Trace,
        between: Callable[[], object] | None = None,
        cancel: threading.Event | None = None,
    ) -> Caption:
        """Answer a further question about the window captioned last, whose frames stay prefilled.

        `between` and `cancel` are those of `caption`.

        Raises:
            InputError: the window before had no frames, or there was none; or as `check_question`.
        """
        self.check_question(question)
        with self._turn, torch.inference_mode(), self._target.lane():
            stream, self._last = self._last, None
            if stream is None:
                raise InputError(
                    "there is no window to ask about: ask again once one has been captioned from its frames"
                )
            caption = self._answer(stream, question, trace, None, between, cancel, None)
            self._last = stream
            return caption

    def check_question(self, question: str) -> None:
        """Raise InputError where it is empty or leaves no room beside the frames for an answer."""
        if not question.strip():
            raise InputError("the question is empty: ask in words")
        # Before megabytes are made tokens of.
        if len(question) > _MOST_QUESTION:
            raise InputError(
                f"the question has {len(question)} characters, but at most {_MOST_QUESTION} are taken: "
                f"shorten it"
            )
        config = self.pair.target.config
        before, after = target_prompt_ids(self.pair.target_tokenizer, question)
        room = config.text_config.max_position_embeddings - config.video_seq_length - _ANSWER_ROOM
        if len(before) + len(after) > room:
            raise InputError(
                f"the question makes a prompt of {len(before) + len(after)} tokens, but the target takes "
                f"{room} beside the frames and an answer: shorten it"
            )

    @torch.inference_mode()
    def warm_up(self, with_target: bool = True, with_draft: bool = True) -> None:
        """Take all buffers, capture all graphs, and do what is slow the first time."""
        if with_target:
            # For those that are open and the last one.
            self._target.warm_up(OPEN_WINDOWS + 1)
            with self._target.lane():
                self._noise_session().verify(DraftTree.filler(_WARM_UP_TOKENS)).argmax(-1).tolist()
        if with_draft and self._stored is None:
            self._draft.warm_up()
            images = _noise(self.pair.event_images, self.pair.event_image_size)
            draft = EventDraft(self.pair, images, _NOISE_QUESTION, _WARM_UP_TOKENS, self._draft.readers)
            self._draft.submit(draft.run, Trace()).result()

    @torch.inference_mode()
    def measure(self) -> VerifyCost:
        """Measure what passes cost, on a window of noise; takes some 60 passes."""
        with self._target.lane():
            session = self._noise_session()
            session.verify(DraftTree())
            return VerifyCost.measured(session, self._target.readers.is_static)

    def close(self) -> None:
        """End the draft's thread."""
        self._open.stop_drafts()
        self._draft.close()
        with self._turn:
            self._learn()
            self.at_close()

    def _noise_session(self) -> TargetSession:
        session = TargetSession(self._target, Trace())
        *first, last = _noise(self.pair.frames, self.pair.frame_size)
        for frame in first:
            session.append_frame(frame)
            session.prefill()
        session.append_frame(last)
        session.append_prompt(_NOISE_QUESTION)
        return session

    def _complete(self, stream: OpenWindow, window: Window) -> None:
        """Give the session the frames that it lacks; they are read together with the question."""
        session = stream.session
        if session is None or not _begins_with(window.frames, session.frames):
            stream.session = session = None  # its buffers serve the next
            session = stream.session = TargetSession(self._target, stream.trace)
        for frame in window.frames[len(session.frames) :]:
            session.append_frame(frame)

    def _answer(
        self,
        stream: OpenWindow,
        question: str,
        trace: Trace,
        on_words: Callable[[str], None] | None,
        between: Callable[[], object] | None,
        cancel: threading.Event | None,
        deadline_ns: int | None,
    ) -> Caption:
        session, draft = stream.session, stream.draft
        assert session is not None
        self._sampling = self.sampling
        passes = session.passes
        drafted: Counter[str] = Counter()
        accepted: Counter[str] = Counter()
        tokens: list[int] = []
        late, ended = False, False
        self._learn()
        session.append_prompt(question)
        while not ended:
            context = _context(question, session, draft, tuple(tokens))
            unread = session.unread
            with trace.span("propose"):
                tree = self.policy.propose(context, unread, self.max_new_tokens - len(tokens))
            begun = self._target.lane.mark()
            with trace.span(_pass_name(session, session.passes - passes, tree)):
                path, following = self._choose(tree, session.verify(tree))
            ended_at = self._target.lane.mark()
            self.policy.observe_pass(unread + len(tree), self._target.lane.seconds(begun, ended_at))
            new = self._cut([*(tree.token_ids[node] for node in path), following])
            session.commit(path, following)
            trace.mark("first_token")
            tokens += new
            drafted.update(source for sources in tree.sources for source in sources)
            accepted.update(source for node in path[: len(new)] for source in tree.sources[node])
            ended = new[-1] == self.pair.eos_id or len(tokens) >= self.max_new_tokens
            late = not ended and deadline_ns is not None and time.perf_counter_ns() > deadline_ns
            # As far as a late caption goes it is right, and the memory must not stay empty for being late.
            self._lesson = Outcome(context, tree, path, tuple(new), ended or late)
            if on_words:
                with trace.span("tell"):
                    on_words(self._text(tokens))
            if late or (cancel is not None and cancel.is_set()):
                break
            if not ended:
                with trace.span("learn"):
                    self._learn()
                if between:
                    between()
        return Caption(
            self._text(tokens), tuple(tokens), "target", session.passes - passes, drafted, accepted, late
        )

    def _learn(self) -> None:
        """Tell the policy how the last pass ended; that of a caption is told later, to save time."""
        lesson, self._lesson = self._lesson, None
        if lesson is not None:
            self.policy.observe(lesson)

    def _choose(self, tree: DraftTree, logits: torch.Tensor) -> tuple[tuple[int, ...], int]:
        sampling = self._sampling
        if sampling is None:
            return greedy_path(tree, logits.argmax(-1).tolist())
        if self._draws is None or self._draws[0] != sampling.seed:
            self._draws = sampling.seed, sampling.generator()
        return sample_path(tree, LazyRows(sampling, logits.cpu()), {}, self._draws[1])

    def _cut(self, new: list[int]) -> list[int]:
        """What a pass adds, up to the end of sequence; the policy keeps to the length limit."""
        return new[: new.index(self.pair.eos_id) + 1] if self.pair.eos_id in new else new

    def _text(self, tokens: Sequence[int]) -> str:
        return self.pair.target_tokenizer.decode(tokens).strip()

    def _draft_alone(
        self,
        stream: OpenWindow,
        window: Window,
        question: str,
        cancel: threading.Event | None,
        deadline_ns: int | None,
    ) -> Caption:
        def stopped() -> bool:
            late = deadline_ns is not None and time.perf_counter_ns() > deadline_ns
            return late or (cancel is not None and cancel.is_set())

        if not len(window.event_images):
            return Caption("", (), "none")
        draft, finished = stream.draft, True
        if draft is None or not draft.ended or draft.question != question:
            self._open.stop_drafts()
            draft = self._event_draft(window.event_images, question)
            asked = self._draft.beating(stopped)
            finished = self._draft.submit(draft.run, stream.trace, asked).result()
        return Caption(draft.text, tuple(draft.tokens), "event_draft", late=not finished)

    def _event_draft(self, images: np.ndarray, question: str) -> EventDraft:
        if self._stored is not None:
            said = self._stored.get(digest(images))
            if said is None:
                raise InputError(
                    "the stored drafts lack one of this recording: delete their file, then all are written"
                )
            return StoredDraft(self.pair, question, said, self._draft.readers)
        return EventDraft(self.pair, images, question, self.max_new_tokens, self._draft.readers)

    def _run_draft(
        self,
        draft: EventDraft,
        trace: Trace,
        on_draft: Callable[[str], None] | None,
        stopped: Callable[[], bool],
    ) -> None:
        try:
            finished = draft.run(trace, self._draft.beating(stopped))
            if finished and on_draft:
                on_draft(draft.text)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # also a panic in a library
            _LOG.error("the event draft failed, the caption goes without it: %r", error)


def _begins_with(frames: np.ndarray, first: list[np.ndarray]) -> bool:
    return len(first) <= len(frames) and all(map(np.array_equal, first, frames))


def _context(
    question: str, session: TargetSession, draft: EventDraft | None, tokens: tuple[int, ...] = ()
) -> Context:
    drafted = draft.proposal() if draft else ((), ())
    return Context(question, tokens, session.question_ids, *drafted, draft.feature if draft else None)


def _pass_name(session: TargetSession, i: int, tree: DraftTree) -> str:
    if i == 0:
        return f"target_prefill[{len(session.frames)}]"
    return f"verify[{i}]" if len(tree) else f"decode[{i}]"


def _noise(images: int, size: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (images, size, size, 3), np.uint8)
