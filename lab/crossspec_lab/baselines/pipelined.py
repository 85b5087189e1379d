"""Pipelined speculative decoding: the event draft goes on while the target verifies its tokens."""

from __future__ import annotations

import threading
from concurrent.futures import wait

from crossspec_lab.baselines.one_shot import LIMIT, BesideDraft, Tokens, Written
from crossspec_lab.baselines.speculative import ContinuingDraft, event_chain, shared_ids
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


class Pipelined(BesideDraft):
    """PipeSpec (McDanel et al., 2025) with two models, the event draft in a thread and stream of its own.

    Neither waits for the other: the target verifies all tokens drafted since its last pass as a chain, or
    decodes one token without any. The draft continues its own tokens until the target departs from them.
    """

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        pipeline = _Pipeline(self.pair)

        def run() -> None:
            pipeline.feed(ContinuingDraft(self.pair, window, question, trace), trace)

        running = self.drafts.submit(run)
        try:
            written = self.answer(window, question, trace, pipeline.take)
        finally:
            pipeline.end()
            wait([running])
        running.result()
        return written


class _Pipeline:
    """The text that both models share: the target's verified tokens, and the draft's continuation."""

    def __init__(self, pair: ModelPair) -> None:
        self._eos_ids, self._shared = pair.target.spec.eos_ids, shared_ids(pair)
        self._text: Tokens = ()
        self._is_over = False
        self._changed = threading.Condition()

    def feed(self, draft: ContinuingDraft, trace: Trace) -> None:
        """Go on drafting until the end."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_over or self._can_grow())
                if self._is_over:
                    return
                text = self._text
            with trace.span("draft_decode"):
                token = draft.after(text)[-1]
            with self._changed:
                # Otherwise the target has departed from the text meanwhile.
                if self._text == text:
                    self._text = (*text, token)

    def take(self, tokens: Tokens) -> DraftTree:
        """Return the draft after the target's `tokens`; a draft that departs from these restarts there."""
        with self._changed:
            if self._text[: len(tokens)] != tokens:
                self._text = tokens
                self._changed.notify()
            drafted = self._text[len(tokens) :]
        return event_chain(drafted[:-1] if drafted and drafted[-1] >= self._shared else drafted)

    def end(self) -> None:
        """Stop the draft after its current token."""
        with self._changed:
            self._is_over = True
            self._changed.notify()

    def _can_grow(self) -> bool:
        """Test that the last token is neither an end nor unknown to the target, and that there is room."""
        if not self._text:
            return True
        last = self._text[-1]
        return last not in self._eos_ids and last < self._shared and len(self._text) < LIMIT
