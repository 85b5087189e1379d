"""A cascade of three: the cheapest drafts, the next qualifies, the target verifies."""

from __future__ import annotations

from crossspec_lab.baselines.one_shot import OneShot
from crossspec_lab.baselines.speculative import DraftAsYouGo, event_chain
from crossspec_lab.baselines.suffix import EarlierOutputs
from crossspec_lab.baselines.written import Written
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


class Cascade(OneShot):
    """Pyramid speculative decoding (PyramidSD; Byun et al., 2025): draft, qualifier, target.

    The tiny family has no model between draft and target. So the event draft is the qualifier, and the draft
    is SuffixDecoding's chain from earlier outputs. Of each chain the qualifier keeps the tokens that it would
    have said itself, and adds its next one, until there are `gamma` for the target. Both agree greedily, not
    fuzzily as published, which would be lossy.
    """

    def __init__(self, pair: ModelPair, gamma: int = 4) -> None:
        super().__init__(pair)
        self._gamma = gamma
        self._outputs = EarlierOutputs()

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        qualifier = DraftAsYouGo(self.pair, window, question, trace)
        prompt, ends = self.pair.target.prompt_ids(question)[1], {*self.pair.target.spec.eos_ids}

        def guess(said: tuple[int, ...]) -> DraftTree:
            kept: tuple[int, ...] = ()
            while len(kept) < self._gamma:
                text = said + kept
                more = qualifier.qualified(text, self._outputs.draft(question, prompt + text)[0])
                kept += more
                if not more or not ends.isdisjoint(more):
                    break
            return event_chain(kept)

        written = self.answer(window, question, trace, guess)
        self._outputs.learn(question, written.tokens)
        return written
