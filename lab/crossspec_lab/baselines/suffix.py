"""SuffixDecoding: draft what followed the same tokens in earlier captions, the longer the match the more."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import partial

from crossspec_lab.baselines.one_shot import Guess, OneShot, Written
from crossspec_lab.baselines.suffix_array import SuffixArray, Tokens
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

DEPTH = 64
"""Tokens of a match and its continuation."""
ALPHA = 4
"""Draft tokens for each matching token."""
MIN_PROB = 0.1
"""Lowest path probability of a draft token."""


class SuffixDecoding(OneShot):
    """SuffixDecoding (Oliaro et al., NeurIPS 2025), a chain a round.

    One index holds the earlier captions for the same question, the other the prompt and the caption so far.
    In each, every run of last tokens that occurred before is followed along the most frequent tokens. As
    published, a draft has at most 4 tokens for each one of the run and a path probability of at least 0.1,
    and indices are 64 tokens deep. The draft with the most expected tokens is verified.
    """

    def __init__(self, pair: ModelPair) -> None:
        super().__init__(pair)
        self.outputs = EarlierOutputs()

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        written = super().__call__(window, question, trace)
        self.outputs.learn(question, written.tokens)
        return written

    def drafter(self, window: Window, question: str, trace: Trace) -> Guess:
        prompt = self.prompt(question)

        def guess(tokens: Tokens) -> DraftTree:
            return DraftTree.chain(*self.outputs.draft(question, prompt + tokens), "suffix")

        return guess


class EarlierOutputs:
    """The captions of a stream, by question."""

    def __init__(self) -> None:
        self._by_question: defaultdict[str, SuffixArray] = defaultdict(partial(SuffixArray, DEPTH))

    def learn(self, question: str, output: Tokens) -> None:
        """Remember a finished caption."""
        self._by_question[question].add(output)

    def draft(self, question: str, text: Tokens) -> tuple[Tokens, tuple[float, ...]]:
        """Continue `text`, prompt and caption so far: return a chain and its probabilities."""
        indices = self._by_question[question], SuffixArray(DEPTH, [text])
        runs = ((index, index.match(text, DEPTH - 1)) for index in indices)
        # Near the end of an earlier caption the longest run has few tokens left, a shorter one more.
        chains = (_chain(index, run[begin:]) for index, run in runs for begin in range(len(run)))
        return max(chains, key=_expected, default=((), ()))


def _expected(draft: tuple[Tokens, tuple[float, ...]]) -> float:
    """Return the expected number of right tokens."""
    return sum(math.prod(draft[1][: i + 1]) for i in range(len(draft[1])))


def _chain(index: SuffixArray, run: Tokens) -> tuple[Tokens, tuple[float, ...]]:
    tokens: list[int] = []
    probs: list[float] = []
    while len(tokens) < ALPHA * len(run) and (counts := index.following((*run, *tokens))):
        best = max(counts, key=lambda token: counts[token])
        prob = counts[best] / sum(counts.values())
        if math.prod(probs) * prob < MIN_PROB:
            break
        tokens.append(best)
        probs.append(prob)
    return tuple(tokens), tuple(probs)
