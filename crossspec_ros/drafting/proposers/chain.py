"""A draft as a proposer: the chain of its tokens that goes on behind what is verified."""

from __future__ import annotations

from itertools import accumulate
from operator import mul

from crossspec_ros.drafting.proposer import Context, Proposer
from crossspec_ros.engine.accept import agreement
from crossspec_ros.engine.tree import DraftTree

LONGEST = 8
"""Most last tokens that are compared."""


class ChainProposer(Proposer):
    """Proposes what the draft of its name says next, with the draft's own probabilities."""

    def __init__(self, name: str) -> None:
        self.name = name

    def is_ready(self, context: Context) -> bool:
        return self.name in context.drafts and bool(context.drafts[self.name].tokens)

    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        draft = context.drafts[self.name]
        begin = align(context.tokens, draft.tokens)
        paths = accumulate(draft.probs[begin : begin + budget], mul)
        end = begin + sum(path >= min_prob for path in paths)
        return DraftTree.chain(draft.tokens[begin:end], draft.probs[begin:end], self.name)


def align(verified: tuple[int, ...], draft: tuple[int, ...]) -> int:
    """Index at which the draft goes on after `verified`; its end where it does not.

    A draft that has parted is aligned by the longest run of last tokens that it has too; of equal runs by the
    one nearest to the same position. Where the very last token is the one in which they differ, the tokens
    before it are matched, and the draft goes on one further.
    """
    if draft[: len(verified)] == verified:
        return len(verified)
    for replaced in (0, 1, 2):
        known = verified[: len(verified) - replaced]
        end = known[::-1][:LONGEST]
        matches = [
            (agreement(draft[:i][::-1], end), -abs(i - len(known)), i) for i in range(1, len(draft) + 1)
        ]
        length, _, place = max(matches, default=(0, 0, 0))
        if length:
            return place + replaced
    return len(draft)
