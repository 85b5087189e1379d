"""The grammar of a structured answer as a proposer: what each answer has, and few ways to go on."""

from __future__ import annotations

import heapq

from crossspec_ros.drafting.proposer import Context, Proposer
from crossspec_ros.engine.tree import ROOT, DraftTree

FEW = 8
"""Tokens that may come next, at most, where each of them is proposed."""


class GrammarProposer(Proposer):
    """Proposes the tokens that the schema forces, and behind them each choice where there are few.

    How often a choice out of so many is right the policy finds out.
    """

    name = "grammar"
    needs = frozenset({"grammar"})

    def propose(self, context: Context, budget: int, worth: float) -> DraftTree:
        assert context.grammar is not None
        tokens, parents, probs = list[int](), list[int](), list[float]()
        # The likeliest end first; of equals the first.
        ends = [(-1.0, 0, ROOT, context.grammar)]
        while ends and len(tokens) < budget:
            path, _, node, state = heapq.heappop(ends)
            for token in state.forced()[: budget - len(tokens)]:
                following = state.after(token)
                if following is None:
                    break
                tokens.append(token)
                parents.append(node)
                probs.append(1.0)
                node, state = len(tokens) - 1, following
            if state.is_over:
                continue
            choices = state.allowed().nonzero()[0].tolist()
            share = 1 / len(choices)
            if len(choices) > FEW or -path * share < worth:
                continue
            for token in choices[: budget - len(tokens)]:
                if following := state.after(token):
                    tokens.append(token)
                    parents.append(node)
                    probs.append(share)
                    heapq.heappush(ends, (path * share, len(tokens), len(tokens) - 1, following))
        return DraftTree(tuple(tokens), tuple(parents), tuple(probs), ((self.name,),) * len(tokens))
