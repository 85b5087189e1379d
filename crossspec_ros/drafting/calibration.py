"""Turns what a proposer believes into how often it is right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crossspec_ros.engine.tree import ROOT, DraftTree

_BINS = 12
_PRIOR = 8.0
_MEMORY = 4096.0


class Calibration:
    """One source's predicted against observed acceptance, in bins of the predicted probability.

    Histogram binning (Zadrozny and Elkan, ICML 2001); each bin starts from the belief that the source is
    right, worth `_PRIOR` observations, and forgets what is older than some `_MEMORY` of them.
    """

    def __init__(self) -> None:
        self._seen = np.zeros(_BINS)
        self._predicted = np.zeros(_BINS)
        self._taken = np.zeros(_BINS)
        self._factor = [1.0] * _BINS

    def apply(self, tree: DraftTree) -> DraftTree:
        """The same tree with the probabilities that its source has earned."""
        factor = self._factor
        probs = tuple(min(1.0, p * factor[int(p * (_BINS - 1e-9))]) for p in tree.probs)
        return DraftTree(tree.token_ids, tree.parents, probs, tree.sources)

    def observe(self, tree: DraftTree, tokens: Sequence[int]) -> None:
        """Compare a proposal, as it was before `apply`, with what the target wrote."""
        children: dict[int, list[int]] = {}
        for i, parent in enumerate(tree.parents):
            children.setdefault(parent, []).append(i)
        node = ROOT
        for token in tokens:
            following = None
            for child in children.get(node, ()):
                self._count(tree.probs[child], tree.token_ids[child] == token)
                if tree.token_ids[child] == token:
                    following = child
            if following is None:
                return
            node = following

    def _count(self, predicted: float, taken: bool) -> None:
        b = int(predicted * (_BINS - 1e-9))
        if self._seen[b] >= _MEMORY:
            for counts in (self._seen, self._predicted, self._taken):
                counts[b] /= 2
        self._seen[b] += 1
        self._predicted[b] += predicted
        self._taken[b] += taken
        middle = (b + 0.5) / _BINS
        self._factor[b] = float((self._taken[b] + _PRIOR * middle) / (self._predicted[b] + _PRIOR * middle))

    def table(self) -> list[tuple[float, float, int]]:
        """Mean predicted probability, observed acceptance and number of observations of each used bin."""
        return [
            (float(p / n), float(t / n), int(n))
            for n, p, t in zip(self._seen, self._predicted, self._taken, strict=True)
            if n
        ]
