"""Pipelined speculative decoding: the draft drafts on while the target verifies what is there."""

from __future__ import annotations

import threading
from concurrent.futures import wait

from crossspec_lab.baselines.one_shot import OneShot
from crossspec_lab.baselines.speculative import DraftAsYouGo, event_chain, shared_ids
from crossspec_lab.baselines.written import LIMIT, Written
from crossspec_ros.drafting.draft_model import DraftModel
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


class Pipelined(OneShot):
    """PipeSpec (McDanel et al., 2025) with two models, the event draft in a thread and stream of its own.

    Neither waits for the other: the target verifies as a chain all that was drafted since, or decodes a token
    alone where that is nothing, and the draft goes on from its own tokens until the target says otherwise.
    """

    def __init__(self, pair: ModelPair) -> None:
        super().__init__(pair)
        assert pair.draft is not None and pair.translation is not None
        self._drafts = DraftModel(pair.draft, pair.translation)

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        pipeline = _Pipeline(self.pair)

        def run() -> None:
            draft = DraftAsYouGo(self.pair, window, question, trace)
            pipeline.feed(draft, trace)

        running = self._drafts.submit(run)
        try:
            written = self.answer(window, question, trace, pipeline.take)
        finally:
            pipeline.end()
            wait([running])
        running.result()
        return written

    def close(self) -> None:
        """End the threads of draft and engine."""
        self._drafts.close()
        super().close()


class _Pipeline:
    """The text that both models share: what the target has verified, and how the draft goes on from there."""

    def __init__(self, pair: ModelPair) -> None:
        self._eos_ids, self._shared = pair.target.spec.eos_ids, shared_ids(pair)
        self._text: tuple[int, ...] = ()
        self._is_over = False
        self._changed = threading.Condition()

    def feed(self, draft: DraftAsYouGo, trace: Trace) -> None:
        """Go on drafting until the end."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_over or self._goes_on())
                if self._is_over:
                    return
                text = self._text
            with trace.span("draft_decode"):
                token = draft.after(text)[-1]
            with self._changed:
                # Else the target has said something else meanwhile.
                if self._text == text:
                    self._text = (*text, token)

    def take(self, said: tuple[int, ...]) -> DraftTree:
        """Draft behind `said`; if the draft has said anything else, it goes back to there."""
        with self._changed:
            if self._text[: len(said)] != said:
                self._text = said
                self._changed.notify()
            drafted = self._text[len(said) :]
        return event_chain(drafted[:-1] if drafted and drafted[-1] >= self._shared else drafted)

    def end(self) -> None:
        """Let the draft stop after the token in work."""
        with self._changed:
            self._is_over = True
            self._changed.notify()

    def _goes_on(self) -> bool:
        """Whether the last token lets a further one follow: not an end, nor one the target does not share."""
        if not self._text:
            return True
        last = self._text[-1]
        return last not in self._eos_ids and last < self._shared and len(self._text) < LIMIT
