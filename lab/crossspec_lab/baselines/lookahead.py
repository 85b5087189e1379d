"""Lookahead decoding: the target guesses for itself, several places ahead in the same pass."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from functools import partial

import torch

from crossspec_lab.baselines.one_shot import OneShot
from crossspec_lab.baselines.written import LIMIT, Written
from crossspec_ros.engine.accept import greedy_path
from crossspec_ros.engine.tree import ROOT, DraftTree
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

COLUMNS = 15
"""W: places that are looked ahead from."""
GRAM = 5
"""N: tokens of an n-gram."""
GUESSES = 15
"""G: n-grams with the same first token that are kept and verified, the latest."""


class Lookahead(OneShot):
    """Lookahead decoding (Fu et al., ICML 2024), with W, N, G = 15, 5, 15 as published for 7B, the smallest.

    A pass has two branches. In the first, W neighbouring places are each guessed again from the last N - 1
    Jacobi iterations (`_Branches`); the n-grams along these go into a pool. In the second, those of the pool
    that begin with the last token are verified. The first branch, whose mask is that of a tree, shares the
    second's pass and is never accepted.
    """

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        branches = _Branches(self.pair.target.prompt_ids(question)[1])
        return self.answer(window, question, trace, branches.guess, branches.accept)


class _Branches:
    """Both branches of one answer; the window begins with random tokens of the prompt, as published.

    `_rows` are Jacobi iterations, the oldest first. The first begins with the last verified token, and each
    token in it sees those on its left; a token of a later row stands one place after the one above it in its
    column, and sees that and what that sees. With each pass a window of N - 1 rows loses its oldest row, and
    so moves on by one place.
    """

    def __init__(self, prompt: tuple[int, ...]) -> None:
        self._prompt = prompt
        # The column more for each row that is missing goes as the window fills.
        tokens = random.Random(0).choices(prompt, k=COLUMNS + GRAM - 2)
        self._rows = [tokens]
        self._pool: defaultdict[int, deque[tuple[int, ...]]] = defaultdict(partial(deque, maxlen=GUESSES))
        self._verified = DraftTree()
        self._choices: list[int] = []

    def guess(self, said: tuple[int, ...]) -> DraftTree:
        """Both branches, that which is verified first."""
        if self._choices:
            self._look_back()
        last, room = (self._prompt + said)[-1], LIMIT - len(said) - 1
        # What would stand behind the limit is of no use.
        columns = max(0, room + 2 - len(self._rows))
        self._rows[0][:1] = [last]
        self._rows = [row[:columns] for row in self._rows]
        chains = (DraftTree.chain(gram, [1.0] * len(gram), "pool") for gram in self._pool[last])
        self._verified = DraftTree.merged(chains).cut(room)
        return self._with_window(self._verified)

    def accept(self, tree: DraftTree, logits: torch.Tensor) -> tuple[tuple[int, ...], int]:
        """Accept the verified branch greedily; what follows the tokens of the other is remembered."""
        self._choices = logits.argmax(-1).tolist()
        return greedy_path(self._verified, self._choices)

    def _with_window(self, verified: DraftTree) -> DraftTree:
        tokens = [token for row in self._rows for token in row][1:]
        columns, first = len(self._rows[0]), len(verified)
        # In the first row the one on the left, else the one above; the last verified token is no node.
        above = [i - 1 if i < columns - 1 else i - columns for i in range(len(tokens))]
        parents = [ROOT if i < 0 else first + i for i in above]
        return DraftTree(
            (*verified.token_ids, *tokens),
            (*verified.parents, *parents),
            (*verified.probs, *[1.0] * len(tokens)),
            (*verified.sources, *[("window",)] * len(tokens)),
        )

    def _look_back(self) -> None:
        """Take over what the last pass gave: the newest row, and the n-grams down the columns."""
        columns = len(self._rows[0])
        behind = [self._choices[0], *self._choices[1 + len(self._verified) :]]
        newest = behind[(len(self._rows) - 1) * columns : len(self._rows) * columns]
        if len(self._rows) < GRAM - 1:
            self._rows = [row[1:] for row in [*self._rows, newest]]
            return
        for first, *rest in zip(*self._rows, newest, strict=True):
            known, gram = self._pool[first], tuple(rest)
            if gram in known:
                known.remove(gram)
            known.append(gram)
        self._rows = [*self._rows[1:], newest]
