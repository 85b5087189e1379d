"""The event draft as a proposer: the chain of its tokens that follows what is verified."""

from __future__ import annotations

from itertools import accumulate
from operator import mul

from crossspec_ros.drafting.align import align
from crossspec_ros.drafting.proposer import Context, Proposer
from crossspec_ros.engine.tree import DraftTree


class EventDraftProposer(Proposer):
    """Proposes what the event draft says next, with the draft's own probabilities."""

    name = "event_draft"
    needs = frozenset({"events"})

    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        begin = align(context.tokens, context.draft_tokens)
        paths = accumulate(context.draft_probs[begin : begin + budget], mul)
        end = begin + sum(path >= min_prob for path in paths)
        return DraftTree.chain(context.draft_tokens[begin:end], context.draft_probs[begin:end], self.name)
