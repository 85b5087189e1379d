"""The event draft as a proposer: the chain of its tokens that follows what is verified."""

from __future__ import annotations

from crossspec_ros.speculation.proposer import Context, Outcome
from crossspec_ros.speculation.tree import DraftTree

LONGEST = 8
"""The longest run of last tokens by which a draft that has departed is aligned anew."""
MEMORY = 200.0
"""Guesses after which the counts of what was taken fade, so that the factor follows the scene."""


class EventDraftProposer:
    """Proposes what the event draft says next; its probabilities are scaled by what the target took of them.

    The factor is the ratio of tokens taken to tokens expected, apart for drafts that the target has followed
    from the first token on and for those aligned anew, by the longest run of last tokens that the draft has
    too; of equal runs the one nearest to the same position.
    """

    name = "event_draft"

    def __init__(self) -> None:
        # [aligned anew, followed so far]
        self._taken = [1.0, 1.0]
        self._expected = [2.0, 2.0]

    def propose(self, context: Context, budget: int) -> DraftTree:
        """A chain of at most `budget` nodes; a draft without `draft_probs` counts as certain of itself."""
        followed, begin = _align(context)
        chain = context.draft_tokens[begin : begin + max(budget, 0)]
        factor = self._taken[followed] / self._expected[followed]
        probs = [min(max(prob * factor, 1e-6), 1.0) for prob in _own_probs(context, begin)[: len(chain)]]
        return DraftTree.chain(chain, probs, self.name)

    def observe(self, outcome: Outcome) -> None:
        """Compare the draft with the tokens of a pass up to the first that differs."""
        followed, begin = _align(outcome.context)
        guesses = outcome.context.draft_tokens[begin:]
        own = _own_probs(outcome.context, begin)
        for guess, prob, actual in zip(guesses, own, outcome.tokens, strict=False):
            fade = 1 - 1 / MEMORY
            self._taken[followed] = fade * self._taken[followed] + (guess == actual)
            self._expected[followed] = fade * self._expected[followed] + prob
            if guess != actual:
                break


def _own_probs(context: Context, begin: int) -> tuple[float, ...]:
    missing = len(context.draft_tokens) - len(context.draft_probs)
    return (context.draft_probs + (1.0,) * missing)[begin:]


def _align(context: Context) -> tuple[bool, int]:
    """Whether the target has followed the draft so far, and where the draft goes on (nowhere: its end)."""
    said, draft = context.tokens, context.draft_tokens
    if draft[: len(said)] == said:
        return True, len(said)
    for order in range(min(LONGEST, len(said), len(draft)), 0, -1):
        places = [i for i in range(order, len(draft) + 1) if draft[i - order : i] == said[-order:]]
        if places:
            return False, min(places, key=lambda place: abs(place - len(said)))
    return False, len(draft)
