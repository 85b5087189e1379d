"""Prefill hiding as published: the event draft writes while the target prefills."""

from __future__ import annotations

import threading

from crossspec_lab.baselines.one_shot import LIMIT, BesideDraft, Tokens, Written
from crossspec_lab.baselines.speculative import event_chain
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


class PublishedPrefillHiding(BesideDraft):
    """Draft during the target's one-shot prefill, verify that draft as a chain, then go on alone.

    The draft ends once it was verified, because it would only slow the target down. If not
    `is_parallel`, the target waits for the complete draft.
    """

    def __init__(self, pair: ModelPair, is_parallel: bool = True) -> None:
        super().__init__(pair)
        self._is_parallel = is_parallel
        self.drafts.warm_up()

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        draft, is_used = self.drafts.draft(window.event_images, question, LIMIT), threading.Event()
        running = self.drafts.submit(draft.run, trace, is_used.is_set)
        if not self._is_parallel:
            running.result()

        def guess(tokens: Tokens) -> DraftTree:
            if not tokens or is_used.is_set():
                return DraftTree()
            is_used.set()
            proposal = draft.proposal().tokens
            # It fits if it begins with the target's first token.
            return event_chain(proposal[1:] if proposal[:1] == tokens else ())

        written = self.answer(window, question, trace, guess)
        is_used.set()
        running.result()
        return written
