"""One response of the target: propose a tree, let the engine verify it, learn from that; until it has ended.

The only place where this loop stands. Whoever needs a response, from a window or to a further question, makes
an `Answer` and advances it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from crossspec_ros.captioning.caption import Caption, Rehearsal
from crossspec_ros.drafting.align import rest
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import Context, PassResult
from crossspec_ros.engine.session import Session, Step
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.errors import RehearsalOverError
from crossspec_ros.telemetry.trace import Trace

if TYPE_CHECKING:
    import numpy as np
    import torch

    from crossspec_ros.engine.sampling import Sampling


class Drafted(Protocol):
    """An event draft as the proposers see it, see `drafting.event_draft.EventDraft`."""

    feature: np.ndarray | None

    @property
    def text(self) -> str: ...

    @property
    def states(self) -> tuple[torch.Tensor, ...]: ...

    def proposal(self) -> tuple[tuple[int, ...], tuple[float, ...]]: ...


class Cancel(threading.Event):
    """Cancellation of a caption, also by `others`; a decoder asks after each step, which shows that it gets
    on."""

    def __init__(self, beat: Callable[[], None], others: threading.Event | None = None) -> None:
        super().__init__()
        self._beat, self._others = beat, others

    def is_set(self) -> bool:
        self._beat()
        return super().is_set() or (self._others is not None and self._others.is_set())


class Stop:
    """Asked after each step of a caption: whether it is cut short, by its reader or by time."""

    def __init__(self, cancel: threading.Event | None, deadline_ns: int | None = None) -> None:
        self._cancel, self._deadline_ns = cancel, deadline_ns
        self.is_late = False

    def __call__(self) -> bool:
        self.is_late = self._deadline_ns is not None and time.perf_counter_ns() > self._deadline_ns
        return self.is_late or (self._cancel is not None and self._cancel.is_set())


class Answer:
    """A response in work, for one thread. It may rest between two passes as long as it likes.

    While it advances, the engine's thread works on it and the one that called waits: a pass that follows
    another needs no thread to wake. `tokens` are those so far, `drafted` and `accepted` count the proposers'
    nodes by name.
    """

    def __init__(
        self,
        session: Session,
        policy: Policy,
        draft: Drafted | None,
        context: Context,
        trace: Trace,
        max_new_tokens: int,
        sampling: Sampling | None,
        is_rehearsal: bool = False,
    ) -> None:
        self._session, self._policy, self._draft = session, policy, draft
        self._context, self._trace = context, trace
        self.max_new_tokens, self.sampling = max_new_tokens, sampling
        self.tokens: tuple[int, ...] = ()
        self.passes = 0
        self.accept_lengths: list[int] = []
        """Tokens that each pass gave; of a target on another host, each message."""
        self.last: Step | None = None
        """Its last pass."""
        self.ended = False
        self.round_trip_s = 0.0
        """Time that the link to the target took, if there is one."""
        self.first_ns = self.ended_ns = 0
        """Times at which its first and its last pass were over (`perf_counter_ns`)."""
        self.drafted: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()
        self._lesson: PassResult | None = None
        # Of the call that waits. A pass that was cancelled is over at once, inside another's end.
        self._over: Future[None] | None = None
        self._taking = threading.RLock()
        # Proposers learn from captions alone.
        self._teaches = not is_rehearsal
        if is_rehearsal:
            self._unread = session.rehearse(context.question, trace)
        else:
            hint = draft.text if draft is not None else ""
            self._unread = session.ask(context.question, trace, max_new_tokens, hint)

    @property
    def subject(self) -> str:
        return self._context.subject

    def advance(self, more: Callable[[], bool] = lambda: False) -> None:
        """One pass of the target, and then another as long as it has not ended and `more()` says so.

        `more` is asked after each pass, mostly in the engine's thread, and must not wait for it.
        """
        try:
            self.go_on(more).result()
        finally:
            # Who was interrupted need not see the pass in flight taken.
            with self._taking:
                self._over = None

    def rehearse(self, before: Rehearsal, more: Callable[[], bool]) -> Rehearsal:
        """Advance while `more()` says so and no frame comes. Where that is not to the end, the rehearsal
        `before` goes on behind what was written."""
        begun = time.perf_counter()
        with suppress(RehearsalOverError, CancelledError):
            self.advance(more)
        tokens = self.rehearsed(before.token_ids)
        seconds = before.seconds + time.perf_counter() - begun
        return Rehearsal(tokens, before.passes + self.passes, seconds, self.ended)

    def rehearsed(self, before: tuple[int, ...]) -> tuple[int, ...]:
        """What was written, and of an answer that is not at its end the rest of the rehearsal before."""
        return self.tokens if self.ended else self.tokens + rest(self.tokens, before)

    def finish(self, stop: Stop, tell: Callable[[], None]) -> None:
        """Advance to the end, or until `stop` says so; `tell` is called after each pass, and at once where
        there are tokens already."""

        def more() -> bool:
            tell()
            return self.ended or not stop()

        if self.tokens:
            tell()
        if not self.ended:
            self.advance(more)
        if stop.is_late:
            self.cut()

    def go_on(self, more: Callable[[], bool]) -> Future[None]:
        """Begin what `advance` does, for who does not wait: the future ends with the last pass."""
        self._over = over = Future[None]()
        self._begin_pass(over, more)
        return over

    def _begin_pass(self, over: Future[None], more: Callable[[], bool]) -> None:
        if self._lesson is not None:
            with self._trace.span("learn"):
                self._policy.observe(self._lesson)
            self._lesson = None
        context = drafted_context(self._context, self._draft, self._session.frames, self.tokens)
        with self._trace.span("propose"):
            left = self.max_new_tokens - len(self.tokens)
            tree = self._policy.propose(context, self._unread, left, self._session.branches)

        def go_on(step: Future[Step]) -> None:
            with self._taking:
                if self._over is not over:
                    return
                try:
                    self._take(context, tree, step.result())
                    if more() and not self.ended:
                        self._begin_pass(over, more)
                        return
                except BaseException as error:  # for who waits
                    self._over = None
                    over.set_exception(error)
                else:
                    # What is told of the end often holds this answer.
                    self._over = None
                    over.set_result(None)

        self._session.step(tree, self.sampling, grammar=context.grammar).add_done_callback(go_on)

    def _take(self, context: Context, tree: DraftTree, step: Step) -> None:
        self.ended_ns = time.perf_counter_ns()
        self.first_ns = self.first_ns or self.ended_ns
        self._policy.observe_pass(max(step.tokens_read, step.most_read), step.seconds, step.rows)
        self._unread, self.passes, self.last = 1, self.passes + step.passes, step
        self.tokens += step.tokens
        self.accept_lengths.append(len(step.tokens))
        self.round_trip_s = max(self.round_trip_s, step.round_trip_s)
        if step.proposed is not None:
            self.drafted.update(step.proposed.drafted)
            self.accepted.update(step.proposed.accepted)
        else:
            self.drafted.update(source for sources in tree.sources for source in sources)
            taken = step.path[: len(step.tokens)]
            self.accepted.update(source for node in taken for source in tree.sources[node])
        self.ended = step.ended or len(self.tokens) >= self.max_new_tokens
        if self._teaches:
            self._lesson = PassResult(context, tree, step.path, step.tokens, self.ended, step)

    def caption(self, text: str, source: str, is_late: bool) -> Caption:
        """Caption of the tokens so far, which are this text, by their `source`."""
        grammar = self._context.grammar
        return Caption(
            text,
            self.tokens,
            source,
            self.passes,
            self.drafted,
            self.accepted,
            is_late,
            self._session.traffic,
            self.round_trip_s,
            accept_lengths=tuple(self.accept_lengths),
            is_json=grammar is not None and grammar.is_over,
        )

    def cut(self) -> None:
        """End it here: as far as it goes it is right, and proposers learn it as if it were whole."""
        if self._lesson is not None:
            self._lesson = replace(self._lesson, ended=True)

    def take_lesson(self) -> PassResult | None:
        """Lesson that the policy was not told yet, so that nobody waits for that."""
        lesson, self._lesson = self._lesson, None
        return lesson


def drafted_context(
    context: Context,
    draft: Drafted | None,
    frames: tuple[torch.Tensor, ...],
    tokens: tuple[int, ...] = (),
) -> Context:
    """The context once these tokens are verified, with what the event draft has said by now."""
    context = replace(context, tokens=tokens, frames=frames)
    if draft is None:
        return context
    said, probs = draft.proposal()
    return replace(
        context,
        draft_tokens=said,
        draft_probs=probs,
        feature=draft.feature,
        draft_states=draft.states,
    )
