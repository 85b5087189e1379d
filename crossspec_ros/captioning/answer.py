"""One response of the target: the proposed trees, the verified tokens, and feedback for the proposers."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from crossspec_ros.captioning.caption import Caption, Rehearsal
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import Context, Draft, PassResult
from crossspec_ros.drafting.proposers.chain import align
from crossspec_ros.engine.accept import accept_tokens
from crossspec_ros.engine.protocols import Step
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.errors import failures_logged
from crossspec_ros.settings import EVENT_DRAFT, REHEARSAL
from crossspec_ros.telemetry.trace import Trace

if TYPE_CHECKING:
    import torch

    from crossspec_ros.captioning.live_windows import LiveWindow
    from crossspec_ros.drafting.draft_model import EventDraft
    from crossspec_ros.engine.sampling import Sampling

_LOG = logging.getLogger(__name__)

REHEARSED_PROB = 0.99
"""Assumed probability of each rehearsed token, before the policy has measured it."""


class Stop:
    """Test of whether to cut an answer short after a pass: it was cancelled, or its deadline has passed."""

    def __init__(self, cancel: threading.Event | None = None, deadline_ns: int | None = None) -> None:
        self._cancel, self._deadline_ns = cancel, deadline_ns
        self.is_late = False

    def __call__(self) -> bool:
        self.is_late = self._deadline_ns is not None and time.perf_counter_ns() > self._deadline_ns
        return self.is_late or (self._cancel is not None and self._cancel.is_set())


class Answer:
    """A response in work; implements `engine.protocols.Answering`.

    `tokens` are the verified tokens so far. `drafted` and `accepted` count the tree nodes of each proposer.

    After each pass the engine's thread calls `on_step` and then `stop`. Both may be replaced while the answer
    is in work. A rehearsal may end after any pass. Its window keeps its tokens, and proposers do not learn
    from it.
    """

    def __init__(
        self,
        window: LiveWindow,
        context: Context,
        policy: Policy,
        trace: Trace,
        max_new_tokens: int,
        sampling: Sampling | None = None,
        is_rehearsal: bool = False,
    ) -> None:
        self._window, self.context, self._policy = window, context, policy
        self.trace, self.max_new_tokens, self.sampling = trace, max_new_tokens, sampling
        self.question, self.grammar = context.question, context.grammar
        self._draw = sampling.draws() if sampling else None
        self._is_rehearsal = is_rehearsal
        self.on_step: Callable[[Answer], None] = lambda answer: None
        self.stop = Stop()
        self.future: Future[None] = Future()
        if is_rehearsal:
            self.future.add_done_callback(self._keep)
        self.tokens: tuple[int, ...] = ()
        self.passes = 0
        self.accept_lengths: list[int] = []
        """Tokens of each pass, or of each message of a target on another host."""
        self.last: Step | None = None
        """The last pass."""
        self.ended = False
        self.seconds = 0.0
        """Time on the device."""
        self.round_trip_s = 0.0
        """Time of the link to a target on another host."""
        self.first_ns = self.ended_ns = 0
        """End of the first and of the last pass (`perf_counter_ns`)."""
        self.drafted: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()
        # The context at the last pass.
        self._latest = context
        self._lesson: PassResult | None = None

    @property
    def hint(self) -> str:
        draft = self._event_draft
        return draft.text if draft is not None else ""

    @property
    def _event_draft(self) -> EventDraft | None:
        """The window's draft, unless it answers another question."""
        draft = self._window.draft
        return draft if draft is not None and draft.question == self.question else None

    @property
    def rehearses(self) -> bool:
        return self._policy.has(REHEARSAL)

    def prepare(self, frames: tuple[torch.Tensor, ...]) -> bool:
        self._update_context(frames)
        return self._policy.prepare(self._latest)

    def propose(self, frames: tuple[torch.Tensor, ...], unread: int, branches: bool) -> DraftTree:
        self.learn()
        self._update_context(frames)
        # The time of a rehearsal is not part of the caption's latency.
        with nullcontext() if self._is_rehearsal else self.trace.span("propose"):
            left = self.max_new_tokens - len(self.tokens)
            return self._policy.propose(self._latest, unread, left, branches)

    def accept(self, tree: DraftTree, logits: Any) -> tuple[tuple[int, ...], int]:
        return accept_tokens(tree, logits, self._draw, self.grammar)

    def take(self, tree: DraftTree, step: Step) -> bool:
        self.ended_ns = time.perf_counter_ns()
        self.first_ns = self.first_ns or self.ended_ns
        self._policy.observe_pass(max(step.tokens_read, step.most_read), step.seconds, step.rows)
        context = replace(self._latest, tokens=self.tokens)
        self.passes, self.last = self.passes + step.passes, step
        self.tokens += step.tokens
        self.seconds += step.seconds
        self.accept_lengths.append(len(step.tokens))
        self.round_trip_s = max(self.round_trip_s, step.round_trip_s)
        self.drafted.update(step.drafted)
        self.accepted.update(step.accepted)
        for sources in tree.sources:
            self.drafted.update(sources)
        for node in step.path[: len(step.tokens)]:
            self.accepted.update(tree.sources[node])
        self.ended = step.ended or len(self.tokens) >= self.max_new_tokens
        self.on_step(self)
        is_over = self.ended or self.stop()
        # The tokens of a cut answer are verified as well, so proposers learn from them.
        if not self._is_rehearsal:
            self._lesson = PassResult(context, tree, step.path, step.tokens, is_over, step)
        return not is_over

    def learn(self) -> None:
        lesson, self._lesson = self._lesson, None
        if lesson is not None:
            with self.trace.span("learn"):
                self._policy.observe(lesson)

    def rest(self, error: BaseException) -> None:
        self._policy.rest(REHEARSAL, error)

    def caption(self, text: str) -> Caption:
        """Return the caption of the tokens so far, whose decoded text is `text`."""
        counts = self.passes, self.drafted, self.accepted
        link = self.last.traffic if self.last is not None else (0, 0), self.round_trip_s
        lengths, is_json = tuple(self.accept_lengths), self.grammar is not None and self.grammar.is_over
        is_late = self.stop.is_late
        return Caption(
            text, self.tokens, "target", *counts, is_late, *link, accept_lengths=lengths, is_json=is_json
        )

    def _keep(self, done: Future[None]) -> None:
        """Store a rehearsal in its window. An incomplete one ends with the previous rehearsal's tokens."""
        before = self._window.rehearsal
        old = before.token_ids
        tokens = self.tokens if self.ended else self.tokens + old[align(self.tokens, old) :]
        passes, seconds = before.passes + self.passes, before.seconds + self.seconds
        self._window.rehearsal = Rehearsal(tokens, passes, seconds, self.ended)

    def _update_context(self, frames: tuple[torch.Tensor, ...]) -> None:
        """Give the proposers the verified tokens, and the drafts that are ready."""
        self._policy.start(self._window.index)
        rehearsed, draft = self._window.rehearsal.token_ids, self._event_draft
        drafts = {**self.context.drafts, REHEARSAL: Draft(rehearsed, (REHEARSED_PROB,) * len(rehearsed))}
        with failures_logged(_LOG, logging.ERROR, "the event draft could not be translated"):
            if draft is not None:
                drafts[EVENT_DRAFT] = draft.proposal()
        self._latest = replace(self.context, tokens=self.tokens, frames=frames, drafts=drafts)
