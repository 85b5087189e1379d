"""Proposer of the tokens that a structured answer's schema forces or leaves few choices for."""

from __future__ import annotations

import heapq

from crossspec_ros.drafting.proposer import Context, Proposer
from crossspec_ros.engine.tree import ROOT, DraftTree
from crossspec_ros.settings import GRAMMAR

FEW = 8
"""Largest number of allowed next tokens for which all are proposed."""


class GrammarProposer(Proposer):
    """Proposes forced tokens, and after them all choices if there are few.

    Choices have equal probabilities, which the policy's calibration corrects.
    """

    name = GRAMMAR

    def is_ready(self, context: Context) -> bool:
        return context.grammar is not None

    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        assert context.grammar is not None
        tokens, parents, probs = list[int](), list[int](), list[float]()

        def add(token: int, parent: int, prob: float) -> int:
            tokens.append(token)
            parents.append(parent)
            probs.append(prob)
            return len(tokens) - 1

        # Heap of leaves: negative path probability, order, node, grammar after it.
        ends = [(-1.0, 0, ROOT, context.grammar.copy())]
        while ends and len(tokens) < budget:
            path, _, node, state = heapq.heappop(ends)
            forced = state.forced()
            for token in forced[: budget - len(tokens)]:
                node = add(token, node, 1.0)
            state.take(*forced)
            choices = [] if state.is_over else state.allowed().nonzero()[0].tolist()
            share = 1 / max(1, len(choices))
            if len(choices) > FEW or -path * share < min_prob:
                continue
            for token in choices[: budget - len(tokens)]:
                following = state.copy()
                following.take(token)
                child = add(token, node, share)
                heapq.heappush(ends, (path * share, child, child, following))
        return DraftTree(tuple(tokens), tuple(parents), tuple(probs))
