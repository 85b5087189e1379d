"""A cascade of three: the cheapest model drafts, the next one qualifies, the target verifies."""

from __future__ import annotations

from crossspec_lab.baselines.one_shot import Guess, Tokens
from crossspec_lab.baselines.speculative import ContinuingDraft, event_chain
from crossspec_lab.baselines.suffix import SuffixDecoding
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


class Cascade(SuffixDecoding):
    """Pyramid speculative decoding (PyramidSD; Byun et al., 2025): draft, qualifier, target.

    The tiny family has no model between draft and target. So the event draft is the qualifier, and the draft
    is SuffixDecoding's chain from earlier captions. The qualifier keeps the tokens of a chain that it would
    have written itself, and adds its next one, until there are `gamma` for the target. Both agree greedily,
    not fuzzily as published, which would be lossy.
    """

    def __init__(self, pair: ModelPair, gamma: int = 4) -> None:
        super().__init__(pair)
        self._gamma = gamma

    def drafter(self, window: Window, question: str, trace: Trace) -> Guess:
        qualifier = ContinuingDraft(self.pair, window, question, trace)
        prompt, ends = self.prompt(question), {*self.pair.target.spec.eos_ids}

        def guess(tokens: Tokens) -> DraftTree:
            kept: Tokens = ()
            while len(kept) < self._gamma:
                text = tokens + kept
                more = qualifier.qualified(text, self.outputs.draft(question, prompt + text)[0])
                kept += more
                if not more or not ends.isdisjoint(more):
                    break
            return event_chain(kept)

        return guess
