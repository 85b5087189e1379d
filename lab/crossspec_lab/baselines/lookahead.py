"""Lookahead decoding: the target drafts for itself, several positions ahead in the same pass."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from functools import partial

import torch

from crossspec_lab.baselines.one_shot import LIMIT, OneShot, Tokens, Written
from crossspec_ros.engine.accept import greedy_path
from crossspec_ros.engine.tree import ROOT, DraftTree
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

COLUMNS = 15
"""W: positions of the window."""
GRAM = 5
"""N: tokens of an n-gram."""
GUESSES = 15
"""G: n-grams with the same first token that are kept and verified, the latest ones."""


class Lookahead(OneShot):
    """Lookahead decoding (Fu et al., ICML 2024), with W, N, G = 15, 5, 15 as published for 7B, the smallest.

    A pass has two branches. The first guesses W neighbouring positions again from the last N - 1 Jacobi
    iterations (`Branches`); the n-grams along these go into a pool. The second verifies the n-grams of the
    pool that begin with the last token. Both share a pass as branches of one tree.
    """

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        branches = Branches(self.prompt(question))
        self.accept = branches.accept
        return self.answer(window, question, trace, branches.guess)


class Branches:
    """Both branches of one answer; the window begins with random tokens of the prompt, as published.

    `_rows` are Jacobi iterations, the oldest first. The first row begins with the last verified token, and
    each of its tokens reads those on its left. A token of a later row stands one position after the one above
    it in its column, and reads that one and what that one reads. Each pass drops the oldest of N - 1 rows,
    which moves the window on by one position.
    """

    def __init__(self, prompt: Tokens) -> None:
        self._prompt = prompt
        # While the window fills, each missing row costs a column.
        self._rows = [random.Random(0).choices(prompt, k=COLUMNS + GRAM - 2)]
        self._pool: defaultdict[int, deque[Tokens]] = defaultdict(partial(deque, maxlen=GUESSES))
        self._verified = DraftTree()
        self._choices: list[int] = []

    def guess(self, tokens: Tokens) -> DraftTree:
        """Return both branches, the verified one first."""
        if self._choices:
            self._move_on()
        last, room = (self._prompt + tokens)[-1], LIMIT - len(tokens) - 1
        # Positions behind the limit are of no use.
        columns = max(0, room + 2 - len(self._rows))
        self._rows[0][:1] = [last]
        self._rows = [row[:columns] for row in self._rows]
        chains = (DraftTree.chain(gram, [1.0] * len(gram), "pool") for gram in self._pool[last])
        self._verified = DraftTree.merged(chains).cut(room)
        return self._with_window(self._verified)

    def accept(self, tree: DraftTree, logits: torch.Tensor) -> tuple[Tokens, int]:
        """Accept the verified branch greedily; keep what follows the tokens of the other branch."""
        self._choices = logits.argmax(-1).tolist()
        return greedy_path(self._verified, self._choices)

    def _with_window(self, verified: DraftTree) -> DraftTree:
        tokens = [token for row in self._rows for token in row][1:]
        columns, first = len(self._rows[0]), len(verified)
        # The parent is on the left in the first row, and above in later ones; the last token is no node.
        above = [i - 1 if i < columns - 1 else i - columns for i in range(len(tokens))]
        parents = [ROOT if i < 0 else first + i for i in above]
        return DraftTree(
            (*verified.token_ids, *tokens),
            (*verified.parents, *parents),
            (*verified.probs, *[1.0] * len(tokens)),
            (*verified.sources, *[("window",)] * len(tokens)),
        )

    def _move_on(self) -> None:
        """Add the newest row of the last pass, and the n-grams down the columns."""
        columns = len(self._rows[0])
        window = [self._choices[0], *self._choices[1 + len(self._verified) :]]
        newest = window[(len(self._rows) - 1) * columns : len(self._rows) * columns]
        if len(self._rows) < GRAM - 1:
            self._rows = [row[1:] for row in [*self._rows, newest]]
            return
        for first, *rest in zip(*self._rows, newest, strict=True):
            grams, gram = self._pool[first], tuple(rest)
            if gram in grams:
                grams.remove(gram)
            grams.append(gram)
        self._rows = [*self._rows[1:], newest]
