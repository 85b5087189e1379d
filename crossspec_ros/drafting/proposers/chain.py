"""Proposer of a draft's tokens as a chain: for the event draft and the rehearsal."""

from __future__ import annotations

from itertools import accumulate
from operator import mul

from crossspec_ros.drafting.proposer import Context, Proposer
from crossspec_ros.engine.accept import agreement
from crossspec_ros.engine.tree import DraftTree

LONGEST = 8
"""Number of last tokens that are compared."""


class ChainProposer(Proposer):
    """Proposes the continuation in the draft of this name, with the draft's probabilities."""

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
    """Return the index of the draft's continuation after `verified`, or the draft's length.

    A draft that differs is aligned by the longest run of last verified tokens that it contains; of equal runs
    by the run nearest to the same index. If no run matches, the last one or two verified tokens replace the
    draft's, and the tokens before them are matched.
    """
    if draft[: len(verified)] == verified:
        return len(verified)
    for replaced in (0, 1, 2):
        prefix = verified[: len(verified) - replaced]
        end = prefix[::-1][:LONGEST]
        matches = [
            (agreement(draft[:i][::-1], end), -abs(i - len(prefix)), i) for i in range(1, len(draft) + 1)
        ]
        length, _, index = max(matches, default=(0, 0, 0))
        if length:
            return index + replaced
    return len(draft)
