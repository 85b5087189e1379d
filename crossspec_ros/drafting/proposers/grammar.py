"""The grammar of a structured answer as a proposer: what each answer has, and few ways to go on."""

from __future__ import annotations

import heapq

from crossspec_ros.drafting.proposer import Context, Proposer
from crossspec_ros.engine.tree import ROOT, DraftTree
from crossspec_ros.settings import GRAMMAR

FEW = 8
"""Tokens that may come next, at most, where each of them is proposed."""


class GrammarProposer(Proposer):
    """Proposes the tokens that the schema forces, and behind them each choice where there are few.

    How often a choice out of so many is right the policy finds out.
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

        # The likeliest end first; of equals the first.
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
