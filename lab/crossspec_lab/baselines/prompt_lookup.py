"""Prompt lookup proposes what followed the last tokens earlier in the question or the response."""

from __future__ import annotations

from crossspec_ros.drafting.proposer import Context, Proposer
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.base import VideoTarget

LONGEST = 3
"""Longest run of last tokens that is looked up, as in Saxena's baseline."""


class PromptLookup(Proposer):
    """Propose the chain after the latest earlier occurrence of the last 3, 2 or 1 tokens (Saxena, 2023)."""

    name = "lookup"

    def __init__(self, target: VideoTarget | None = None) -> None:
        """Without a `target` the question is not searched."""
        self._target = target

    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        """Return a chain of at most `budget` nodes; `probs` only distinguish the lengths of matches.

        The policy measures how often each length is right.
        """
        text = self._target.prompt_ids(context.question)[1] if self._target else ()
        text += context.tokens
        for order in range(min(LONGEST, len(text) - 1), 0, -1):
            for begin in range(len(text) - order - 1, -1, -1):
                if text[begin : begin + order] == text[-order:]:
                    chain = text[begin + order :][:budget]
                    return DraftTree.chain(chain, (order / (order + 1),) * len(chain), self.name)
        return DraftTree()
