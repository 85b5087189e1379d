"""One window to one caption: frames are read as they come, and the answer is verified tree by tree.

Whatever the proposers guess, the caption is the target's own (docs/decoding.md).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch

from crossspec_ros.errors import InputError
from crossspec_ros.speculation.event_draft import EventDraft
from crossspec_ros.speculation.frame_features import FrameFeatures, digest
from crossspec_ros.speculation.policy import Policy
from crossspec_ros.speculation.proposer import Context, Outcome
from crossspec_ros.speculation.sampling import Sampling, sample_path
from crossspec_ros.speculation.target_session import TargetSession
from crossspec_ros.speculation.tree import DraftTree
from crossspec_ros.speculation.verify import greedy_path
from crossspec_ros.speculation.verify_cost import VerifyCost
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.vlm.loading import ModelPair
from crossspec_ros.windows.window import Window

_LOG = logging.getLogger(__name__)

_OPEN_WINDOWS = 2
"""Windows that may be read ahead at a time: each has a KV cache of its own."""


@dataclass(frozen=True)
class Caption:
    """What was said about a window.

    `source` is "target", or "event_draft" where there were no frames (then no target verified it), or "none"
    where there was nothing to see. `token_ids` include the end-of-sequence token, unless the caption was cut.
    `target_passes` counts the passes that gave tokens. `drafted` tokens of each proposer were put to the
    target, which took `accepted` of them; a token that two proposed counts for both.
    """

    text: str
    token_ids: tuple[int, ...]
    source: str
    target_passes: int = 0
    drafted: Mapping[str, int] = field(default_factory=dict)
    accepted: Mapping[str, int] = field(default_factory=dict)
    late: bool = False

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens per target pass, the target's own one included."""
        return len(self.token_ids) / self.target_passes if self.target_passes else 0.0


class _Stream:
    """What is known of a window that is still open."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.session: TargetSession | None = None
        self.event_images: list[np.ndarray] = []
        self.draft: EventDraft | None = None
        self.running: Future[None] | None = None
        self.stop = threading.Event()

    def end_draft(self) -> None:
        """A draft that is still writing has nothing more to tell and must not slow the target down."""
        self.stop.set()
        if self.running is not None and (error := self.running.exception()):
            _LOG.error("the event draft failed, the caption goes without it: %r", error)


class PrefillHiddenDecoder:
    """Reads windows while they are open and captions them once they close; owns the draft's thread.

    `stream_frame`, `caption` and `ask` belong to one thread; `stream_event_image` may be called from another.
    With an empty policy it is the plain autoregressive target.
    """

    def __init__(
        self,
        pair: ModelPair,
        policy: Policy,
        max_new_tokens: int = 64,
        sampling: Sampling | None = None,
    ) -> None:
        self._pair, self.policy, self._limit, self._sampling = pair, policy, max_new_tokens, sampling
        self._generator = sampling.generator() if sampling else torch.Generator()
        self._features = FrameFeatures(pair)
        self._streams: OrderedDict[int, _Stream] = OrderedDict()
        self._streams_lock = threading.Lock()
        self._last: _Stream | None = None
        self._draft_thread = ThreadPoolExecutor(1, "draft")
        self.at_close: Callable[[], object] = lambda: None
        """What remains to be done when the decoder closes."""

    @torch.inference_mode()
    def stream_frame(self, index: int, frame: np.ndarray) -> None:
        """Encode and prefill the next (H, W, 3) uint8 RGB frame of the open window `index`."""
        stream = self._stream(index)
        session = stream.session or TargetSession(self._pair, self._features, stream.trace)
        # Should it fail half way, the window is read anew when it closes.
        stream.session = None
        session.append_frame(frame)
        session.prefill()
        stream.session = session

    def stream_event_image(
        self, index: int, image: np.ndarray, question: str, on_draft: Callable[[str], None] | None = None
    ) -> Future[None] | None:
        """Take the next (H, W, 3) uint8 RGB event image of the open window `index`.

        All but the last are enough for the event draft to start, so that it is done when the window closes.
        `on_draft` gets its text, in the draft's thread; a draft that is not done in time is dropped.
        Returns the draft's work once it has begun.
        """
        stream = self._stream(index)
        stream.event_images.append(image)
        if len(stream.event_images) == max(1, self._pair.event_images - 1) and stream.draft is None:
            self._stop_drafts()
            stream.draft = EventDraft(self._pair, np.stack(stream.event_images), question, self._limit)
            stream.running = self._draft_thread.submit(
                _run_draft, stream.draft, stream.trace, on_draft, stream.stop.is_set
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
        stream = self._close(window.index)
        self._last = None
        stream.end_draft()
        try:
            if not len(window.frames):
                return self._draft_alone(window, question, stream.trace, cancel)
            with torch.inference_mode():
                self._complete(stream, window)
                caption = self._answer(stream, question, stream.trace, on_words, between, cancel, deadline_ns)
            self._last = stream
            return caption
        finally:
            trace.extend(stream.trace)

    def ask(self, question: str, trace: Trace, cancel: threading.Event | None = None) -> Caption:
        """Answer a further question about the window captioned last, whose frames stay prefilled.

        Raises:
            InputError: no window with frames was captioned yet.
        """
        stream, self._last = self._last, None
        if stream is None:
            raise InputError(
                "there is no window to ask about yet: ask once a caption of frames has been given"
            )
        with torch.inference_mode():
            caption = self._answer(stream, question, trace, None, None, cancel, None)
        self._last = stream
        return caption

    @torch.inference_mode()
    def measure(self) -> VerifyCost:
        """Measure what passes cost, on a window of noise; takes some 60 passes."""
        size = self._pair.frame_size
        frames = np.random.default_rng(0).integers(0, 256, (self._pair.frames, size, size, 3), np.uint8)
        session = TargetSession(self._pair, self._features, Trace())
        for frame in frames:
            session.append_frame(frame)
        session.append_prompt("What is this?")
        session.verify(DraftTree())
        return VerifyCost.measured(session)

    def close(self) -> None:
        """End the draft's thread."""
        self._stop_drafts()
        self._draft_thread.shutdown()
        self.at_close()

    def _stream(self, index: int) -> _Stream:
        with self._streams_lock:
            if index not in self._streams:
                self._streams[index] = _Stream(Trace())
                while len(self._streams) > _OPEN_WINDOWS:
                    self._streams.popitem(last=False)[1].stop.set()
            return self._streams[index]

    def _stop_drafts(self) -> None:
        """One draft at a time: what an earlier window's has written by now must do."""
        with self._streams_lock:
            for stream in self._streams.values():
                if stream.draft is not None:
                    stream.stop.set()

    def _close(self, index: int) -> _Stream:
        """The stream of a window, or a new one where it was not streamed; older ones are forgotten."""
        with self._streams_lock:
            for other in [i for i in self._streams if i < index]:
                self._streams.pop(other).stop.set()
            return self._streams.pop(index, None) or _Stream(Trace())

    def _complete(self, stream: _Stream, window: Window) -> None:
        """Give the session the frames that it lacks; they are read together with the question."""
        frames = [digest(frame) for frame in window.frames]
        session = stream.session
        if session is None or session.frames != frames[: len(session.frames)]:
            session = stream.session = TargetSession(self._pair, self._features, stream.trace)
        for frame in window.frames[len(session.frames) :]:
            session.append_frame(frame)

    def _answer(
        self,
        stream: _Stream,
        question: str,
        trace: Trace,
        on_words: Callable[[str], None] | None,
        between: Callable[[], object] | None,
        cancel: threading.Event | None,
        deadline_ns: int | None,
    ) -> Caption:
        session, draft = stream.session, stream.draft
        assert session is not None
        passes = session.passes
        drafted: Counter[str] = Counter()
        accepted: Counter[str] = Counter()
        tokens: list[int] = []
        late, ended = False, False
        session.append_prompt(question)
        while not ended:
            context = Context(
                question,
                tuple(tokens),
                session.question_ids,
                *(draft.proposal() if draft else ((), ())),
                draft.feature if draft else None,
            )
            unread = session.unread
            with trace.span("propose"):
                tree = self.policy.propose(context, unread, self._limit - len(tokens))
            started = time.perf_counter()
            with trace.span(_pass_name(session, session.passes - passes, tree)):
                path, following = self._choose(tree, session.verify(tree))
            self.policy.observe_pass(unread + len(tree), time.perf_counter() - started)
            new = self._cut([*(tree.token_ids[node] for node in path), following], len(tokens))
            session.commit(path, following)
            trace.mark("first_token")
            tokens += new
            drafted.update(source for sources in tree.sources for source in sources)
            accepted.update(source for node in path[: len(new)] for source in tree.sources[node])
            ended = new[-1] == self._pair.eos_id or len(tokens) >= self._limit
            self.policy.observe(Outcome(context, tree, path, tuple(new), ended))
            if on_words:
                on_words(self._text(tokens))
            if not ended:
                late = deadline_ns is not None and time.perf_counter_ns() > deadline_ns
                if late or (cancel is not None and cancel.is_set()):
                    break
                if between:
                    between()
        return Caption(
            self._text(tokens), tuple(tokens), "target", session.passes - passes, drafted, accepted, late
        )

    def _choose(self, tree: DraftTree, logits: torch.Tensor) -> tuple[tuple[int, ...], int]:
        if self._sampling is None:
            return greedy_path(tree, logits.argmax(-1).tolist())
        return sample_path(tree, self._sampling.probs(logits), {}, self._generator)

    def _cut(self, new: Sequence[int], written: int) -> list[int]:
        """What a pass adds, up to the end of sequence and the length limit."""
        new = list(new[: self._limit - written])
        return new[: new.index(self._pair.eos_id) + 1] if self._pair.eos_id in new else new

    def _text(self, tokens: Sequence[int]) -> str:
        return self._pair.target_tokenizer.decode(tokens).strip()

    def _draft_alone(
        self, window: Window, question: str, trace: Trace, cancel: threading.Event | None
    ) -> Caption:
        if not len(window.event_images):
            return Caption("", (), "none")
        draft = EventDraft(self._pair, window.event_images, question, self._limit)
        draft.run(trace, lambda: cancel is not None and cancel.is_set())
        return Caption(draft.text, tuple(draft.tokens), "event_draft")


def _pass_name(session: TargetSession, i: int, tree: DraftTree) -> str:
    if i == 0:
        return f"target_prefill[{len(session.frames)}]"
    return f"verify[{i}]" if len(tree) else f"decode[{i}]"


def _run_draft(
    draft: EventDraft, trace: Trace, on_draft: Callable[[str], None] | None, stopped: Callable[[], bool]
) -> None:
    if draft.run(trace, stopped) and on_draft:
        on_draft(draft.text)
