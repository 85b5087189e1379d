"""Prefill hiding as it was published: the event draft writes while the target prefills."""

from __future__ import annotations

import threading

from crossspec_lab.baselines.one_shot import OneShot
from crossspec_lab.baselines.written import LIMIT, Written
from crossspec_ros.drafting.draft_model import DraftModel
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


class PublishedPrefillHiding(OneShot):
    """Draft beside the target's one-shot prefill, verify what is there as a chain, then go on alone.

    It has buffers, graphs and streams as ours has them. The draft ends when it has been asked: it has nothing
    more to tell, and would only slow the target down. Not `beside`, the target waits for the whole draft.
    """

    def __init__(self, pair: ModelPair, beside: bool = True) -> None:
        super().__init__(pair)
        self._beside = beside
        assert pair.draft is not None and pair.translation is not None
        self._drafts = DraftModel(pair.draft, pair.translation)
        self._drafts.warm_up()

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        draft, asked = self._drafts.draft(window.event_images, question, LIMIT), threading.Event()
        running = self._drafts.submit(draft.run, trace, asked.is_set)
        if not self._beside:
            running.result()

        def guess(tokens: tuple[int, ...]) -> DraftTree:
            if not tokens or asked.is_set():
                return DraftTree()
            asked.set()
            proposal = draft.proposal().tokens
            # It fits if it begins as the target does.
            fitting = proposal[1:] if proposal[:1] == tokens else ()
            return DraftTree.chain(fitting, [1.0] * len(fitting), "event_draft")

        written = self.answer(window, question, trace, guess)
        asked.set()
        running.result()
        return written

    def close(self) -> None:
        """End the threads of draft and engine."""
        self._drafts.close()
        super().close()
