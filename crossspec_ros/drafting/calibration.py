"""Calibration of a proposer's probabilities by the observed acceptance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from crossspec_ros.engine.tree import ROOT, DraftTree

_BINS = 12
_MIDDLES = (np.arange(_BINS) + 0.5) / _BINS
_PRIOR = 8.0
"""Weight of the prior (correct probabilities) in each bin, in observations."""
_MEMORY = 4096.0
"""Observations of a bin after which its counts are halved."""


class Calibration:
    """One proposer's predicted and observed acceptance, in bins of the predicted probability.

    Histogram binning (Zadrozny and Elkan, ICML 2001).
    """

    def __init__(self) -> None:
        self.counts = np.zeros((3, _BINS))
        """For each bin: observations, sum of predicted probabilities, accepted tokens."""

    def apply(self, tree: DraftTree) -> DraftTree:
        """Return the tree with corrected probabilities."""
        _, predicted, accepted = self.counts
        factors = (accepted + _PRIOR * _MIDDLES) / (predicted + _PRIOR * _MIDDLES)
        probs = tuple(min(1.0, prob * float(factors[_bin(prob)])) for prob in tree.probs)
        return DraftTree(tree.token_ids, tree.parents, probs, tree.sources)

    def observe(self, tree: DraftTree, tokens: Sequence[int]) -> None:
        """Count the nodes of a proposal (before `apply`) that equal the target's `tokens`."""
        children: defaultdict[int | None, list[int]] = defaultdict(list)
        for node, parent in enumerate(tree.parents):
            children[parent].append(node)
        at: int | None = ROOT
        for token in tokens:
            siblings = children[at]
            for node in siblings:
                counts = self.counts[:, _bin(tree.probs[node])]
                if counts[0] >= _MEMORY:
                    counts /= 2
                counts += 1, tree.probs[node], tree.token_ids[node] == token
            # A token that was not proposed has no children.
            at = next((node for node in siblings if tree.token_ids[node] == token), None)


def _bin(prob: float) -> int:
    return int(prob * (_BINS - 1e-9))
