"""SuffixDecoding: what the stream said before after the same tokens, the longer the match the more of it."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import partial

from crossspec_lab.baselines.one_shot import OneShot
from crossspec_lab.baselines.suffix_array import SuffixArray, Tokens
from crossspec_lab.baselines.written import Written
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

DEPTH = 64
"""Tokens of a match and what follows it."""
ALPHA = 4
"""Tokens that are drafted for each one that matches."""
LEAST_PROB = 0.1
"""Least probability of a draft token, all before it counted in."""


class SuffixDecoding(OneShot):
    """SuffixDecoding (Oliaro et al., NeurIPS 2025), a chain a round.

    One index has the earlier outputs to the same question, the other the prompt and what was said so far. In
    each, every run of last tokens that went on somewhere is followed along the most frequent tokens.
    As published, a draft has at most alpha tokens for each one of the run (alpha is 4 here) and a path
    probability of 0.1 at least, and indices are 64 tokens deep. Of all drafts that is taken of which most
    tokens are to be expected.
    """

    def __init__(self, pair: ModelPair) -> None:
        super().__init__(pair)
        self._outputs = EarlierOutputs()

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        prompt = self.pair.target.prompt_ids(question)[1]

        def guess(said: Tokens) -> DraftTree:
            tokens, probs = self._outputs.draft(question, prompt + said)
            return DraftTree.chain(tokens, probs, "suffix")

        written = self.answer(window, question, trace, guess)
        self._outputs.learn(question, written.tokens)
        return written


class EarlierOutputs:
    """The captions of a stream, by question."""

    def __init__(self) -> None:
        self._by_question: defaultdict[str, SuffixArray] = defaultdict(partial(SuffixArray, DEPTH))

    def learn(self, question: str, output: Tokens) -> None:
        """Remember a finished caption."""
        self._by_question[question].add(output)

    def draft(self, question: str, text: Tokens) -> tuple[Tokens, tuple[float, ...]]:
        """Continuation of `text`, which is prompt and caption so far: a chain and its probabilities."""
        indices = self._by_question[question], SuffixArray(DEPTH, [text])
        return max((_followed(index, text) for index in indices), key=_expected)


def _expected(draft: tuple[Tokens, tuple[float, ...]]) -> float:
    """Expected number of its tokens that are right."""
    return sum(math.prod(draft[1][: i + 1]) for i in range(len(draft[1])))


def _followed(index: SuffixArray, text: Tokens) -> tuple[Tokens, tuple[float, ...]]:
    run = index.match(text, DEPTH - 1)
    # Near the end of a known text the longest run goes on for a token or two, a shorter one for more.
    return max((_chain(index, run[begin:]) for begin in range(len(run))), key=_expected, default=((), ()))


def _chain(index: SuffixArray, run: Tokens) -> tuple[Tokens, tuple[float, ...]]:
    tokens: list[int] = []
    probs: list[float] = []
    path = 1.0
    while len(tokens) < ALPHA * len(run) and (counts := index.following((*run, *tokens))):
        best = max(counts, key=lambda token: counts[token])
        prob = counts[best] / sum(counts.values())
        path *= prob
        if path < LEAST_PROB:
            break
        tokens.append(best)
        probs.append(prob)
    return tuple(tokens), tuple(probs)
