"""The event draft as a proposer: the chain of its tokens that follows what is verified."""

from __future__ import annotations

from crossspec_ros.drafting.proposer import Context, Proposer
from crossspec_ros.engine.tree import DraftTree

LONGEST = 8
"""The longest run of last tokens by which a draft that has departed is aligned anew."""


class EventDraftProposer(Proposer):
    """Proposes what the event draft says next, with the draft's own probabilities."""

    name = "event_draft"
    needs = frozenset({"events"})

    def propose(self, context: Context, budget: int, worth: float) -> DraftTree:
        begin = align(context.tokens, context.draft_tokens)
        path, end = 1.0, begin
        for prob in context.draft_probs[begin : begin + budget]:
            path *= prob
            if path < worth:
                break
            end += 1
        return DraftTree.chain(context.draft_tokens[begin:end], context.draft_probs[begin:end], self.name)


def align(said: tuple[int, ...], draft: tuple[int, ...]) -> int:
    """Index at which the draft goes on after `said`; nowhere is its end.

    A draft that has departed is aligned by the longest run of last tokens that it has too; of equal runs by
    the one nearest to the same position. Where the very last token is the one in which they differ, the
    tokens before it are matched, and the draft goes on one further.
    """
    if draft[: len(said)] == said:
        return len(said)
    for replaced in (0, 1, 2):
        known = said[: len(said) - replaced]
        matches = [(_common_end(draft[:i], known), -abs(i - len(known)), i) for i in range(1, len(draft) + 1)]
        length, _, place = max(matches, default=(0, 0, 0))
        if length:
            return place + replaced
    return len(draft)


def _common_end(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Number of last tokens that are the same, up to LONGEST."""
    length = 0
    while length < min(len(a), len(b), LONGEST) and a[-1 - length] == b[-1 - length]:
        length += 1
    return length
