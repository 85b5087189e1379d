"""One window to one caption: the target alone, or verifying what the event draft wrote while it prefilled.

Greedy verification is that of Leviathan et al. (ICML 2023) at temperature 0: of the draft, the longest
prefix that the
target would have written itself stays, followed by the target's own next token. The caption is the
target's either way.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch

from crossspec_ros.errors import InputError
from crossspec_ros.speculation.event_draft import EventDraft
from crossspec_ros.speculation.target_session import TargetSession
from crossspec_ros.speculation.verify import agreement
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.vlm.loading import ModelPair
from crossspec_ros.windows.window import Window

_LOG = logging.getLogger(__name__)

MODES = ("autoregressive", "prefill_hidden")


@dataclass(frozen=True)
class Caption:
    """What was said about a window.

    `source` is "target", or "event_draft" where there were no frames (then no target verified it), or
    "none" where
    there was nothing to see. `token_ids` include the end-of-sequence token. `target_passes` counts the
    prefill;
    `mean_acceptance_length` is the number of tokens per pass after it. `drafted` tokens were put to the
    target, the first `accepted` of which it would have written itself.
    """

    text: str
    token_ids: tuple[int, ...]
    source: str
    target_passes: int = 0
    drafted: int = 0
    accepted: int = 0

    @property
    def mean_acceptance_length(self) -> float:
        return (len(self.token_ids) - 1) / (self.target_passes - 1) if self.target_passes > 1 else 0.0


class PrefillHiddenDecoder:
    """Captions windows one after the other; owns the draft's thread."""

    def __init__(self, pair: ModelPair, mode: str = "prefill_hidden", max_new_tokens: int = 64) -> None:
        if mode not in MODES:
            raise InputError(f"the mode '{mode}' does not exist: choose one of {', '.join(MODES)}")
        self._pair, self._mode, self._limit = pair, mode, max_new_tokens
        self._draft_thread = ThreadPoolExecutor(1, "draft")

    def caption(
        self,
        window: Window,
        question: str,
        trace: Trace,
        on_draft: Callable[[str], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> Caption:
        """Caption a window; every stage becomes a span of `trace`.

        Args:
            on_draft: gets the draft's text, in the draft's thread, as soon as it is finished; a draft that
                the target overtakes is dropped.
            cancel: once set, the caption is cut short after the pass in flight.
        """
        cancel, finished = cancel or threading.Event(), threading.Event()
        draft: EventDraft | None = None
        running: Future[None] | None = None
        if len(window.event_images) and (self._mode == "prefill_hidden" or not len(window.frames)):
            draft = EventDraft(self._pair, window.event_images, question, self._limit)
            stops = (cancel, finished)
            running = self._draft_thread.submit(_run_draft, draft, trace, on_draft, stops)
        if len(window.frames):
            try:
                return self._target_caption(window, question, trace, draft, cancel)
            finally:
                # A draft that is still writing has nothing more to tell and must not delay the next one.
                finished.set()
                if running is not None and (error := running.exception()):
                    _LOG.error("the event draft failed, the caption is the target's alone: %r", error)
        if draft is None or running is None:
            return Caption("", (), "none")
        running.result()
        return Caption(draft.text, tuple(draft.tokens), "event_draft")

    def close(self) -> None:
        """End the draft's thread; a draft in flight is waited for, so set its `cancel` first."""
        self._draft_thread.shutdown()

    @torch.inference_mode()
    def _target_caption(
        self, window: Window, question: str, trace: Trace, draft: EventDraft | None, cancel: threading.Event
    ) -> Caption:
        session = TargetSession(self._pair, trace)
        for frame in window.frames:
            session.append_frame(frame)
        tokens = [session.append_prompt(question)]
        trace.mark("first_token")
        # What is there now was free; waiting for more would not be.
        proposal = draft.proposal()[: self._limit] if draft else []
        accepted = agreement(proposal[:1], tokens)
        if accepted and tokens[0] != self._pair.eos_id and len(proposal) > 1:
            with trace.span("verify[0]"):
                choices = session.verify(proposal)
            more = agreement(proposal[1:], choices)
            session.commit(len(proposal), 1 + more)
            accepted += more
            tokens += choices[: more + 1]
        while not self._ended(tokens) and not cancel.is_set():
            with trace.span(f"decode[{len(tokens)}]"):
                tokens += session.verify(tokens[-1:])
        tokens = self._cut(tokens)
        return Caption(
            self._pair.target_tokenizer.decode(tokens).strip(),
            tuple(tokens),
            "target",
            session.passes,
            len(proposal),
            accepted,
        )

    def _ended(self, tokens: list[int]) -> bool:
        return self._pair.eos_id in tokens or len(tokens) >= self._limit

    def _cut(self, tokens: list[int]) -> list[int]:
        end = tokens.index(self._pair.eos_id) + 1 if self._pair.eos_id in tokens else len(tokens)
        return tokens[: min(end, self._limit)]


def _run_draft(
    draft: EventDraft,
    trace: Trace,
    on_draft: Callable[[str], None] | None,
    stops: Sequence[threading.Event],
) -> None:
    if draft.run(trace, lambda: any(stop.is_set() for stop in stops)) and on_draft:
        on_draft(draft.text)
