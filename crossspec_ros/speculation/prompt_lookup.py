"""Prompt lookup: what followed the last words where the question or the response had them before."""

from __future__ import annotations

from crossspec_ros.speculation.proposer import Context, Outcome
from crossspec_ros.speculation.tree import DraftTree

LONGEST = 3
"""The longest run of last tokens that is looked for, as in Saxena's baseline."""


class PromptLookup:
    """Proposes the chain after the latest earlier occurrence of the last 3, 2 or 1 tokens (Saxena, 2023).

    How likely a guess is taken, by the length of the match, is counted, from one in two on.
    """

    name = "lookup"

    def __init__(self) -> None:
        self._taken = [1.0] * (LONGEST + 1)
        self._tried = [2.0] * (LONGEST + 1)

    def propose(self, context: Context, budget: int) -> DraftTree:
        """A chain of at most `budget` nodes; `probs` are the share of guesses that held so far."""
        order, chain = _look_up(context)
        chain = chain[: max(budget, 0)]
        prob = self._taken[order] / self._tried[order]
        return DraftTree.chain(chain, (prob,) * len(chain), self.name)

    def observe(self, outcome: Outcome) -> None:
        """Count the guesses up to the first that did not hold."""
        order, chain = _look_up(outcome.context)
        for guess, actual in zip(chain, outcome.tokens, strict=False):
            self._tried[order] += 1
            if guess != actual:
                break
            self._taken[order] += 1


def _look_up(context: Context) -> tuple[int, tuple[int, ...]]:
    """The length of the match, and all that followed it; (0, ()) if there is none."""
    text = context.prompt_ids + context.tokens
    for order in range(min(LONGEST, len(text) - 1), 0, -1):
        run = text[-order:]
        for begin in range(len(text) - order - 1, -1, -1):
            if text[begin : begin + order] == run:
                return order, text[begin + order :]
    return 0, ()
