"""The rehearsal as a proposer: what the target wrote before the last frames came."""

from __future__ import annotations

from crossspec_ros.drafting.align import rest
from crossspec_ros.drafting.proposer import REHEARSAL, Context, Proposer
from crossspec_ros.engine.tree import DraftTree

PROB = 0.99
"""Belief in each token, before the policy has measured it."""


class RehearsalProposer(Proposer):
    """Proposes the rest of the rehearsal behind what is verified."""

    name = REHEARSAL
    needs = frozenset({REHEARSAL})

    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        tokens = rest(context.tokens, context.rehearsal)[:budget]
        return DraftTree.chain(tokens, [PROB] * len(tokens), self.name)
