"""Prompt lookup: what followed the last words where the question or the response had them before."""

from __future__ import annotations

from crossspec_ros.drafting.proposer import Context, Proposer
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.base import VideoTarget

LONGEST = 3
"""The longest run of last tokens that is looked for, as in Saxena's baseline."""


class PromptLookup(Proposer):
    """Proposes the chain after the latest earlier occurrence of the last 3, 2 or 1 tokens (Saxena, 2023)."""

    name = "lookup"

    def __init__(self, target: VideoTarget | None = None) -> None:
        """Without a `target` the question is not looked up."""
        self._target = target

    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        """A chain of at most `budget` nodes; `probs` only tell the lengths of matches apart.

        How often each length is right the policy finds out.
        """
        prompt = self._target.prompt_ids(context.question)[1] if self._target else ()
        order, chain = _look_up(prompt + context.tokens)
        chain = chain[:budget]
        return DraftTree.chain(chain, (order / (order + 1),) * len(chain), self.name)


def _look_up(text: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """The length of the match, and all that followed it; (0, ()) if there is none."""
    for order in range(min(LONGEST, len(text) - 1), 0, -1):
        run = text[-order:]
        for begin in range(len(text) - order - 1, -1, -1):
            if text[begin : begin + order] == run:
                return order, text[begin + order :]
    return 0, ()
