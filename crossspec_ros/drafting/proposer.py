"""What a proposer sees, what it gives, and what it is told afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from crossspec_ros.engine.tree import DraftTree


@dataclass(frozen=True)
class Context:
    """What is known when the next pass is put together.

    `tokens` are the verified tokens of the response so far (none before the first pass), `prompt_ids` the
    question's, `draft_tokens` what the event draft has written so far with its own probabilities
    `draft_probs`, `feature` the (d,) pooled event feature of the window.
    """

    question: str
    tokens: tuple[int, ...] = ()
    prompt_ids: tuple[int, ...] = ()
    draft_tokens: tuple[int, ...] = ()
    draft_probs: tuple[float, ...] = ()
    feature: np.ndarray | None = None


@dataclass(frozen=True)
class Outcome:
    """The result of a pass: the nodes of `tree` that the target took, and all tokens this added.

    `tokens` are those of `path` and the target's own next one, cut at the end of the response; `ended` says
    that the response is complete with them.
    """

    context: Context
    tree: DraftTree
    path: tuple[int, ...]
    tokens: tuple[int, ...]
    ended: bool


class Proposer(Protocol):
    """Guesses how a response goes on; it may be as wrong as it likes, for the target has the last word."""

    name: str

    def propose(self, context: Context, budget: int, worth: float) -> DraftTree:
        """At most `budget` nodes; those with a path probability below `worth` would not be verified.

        None where it knows nothing.
        """
        ...

    def observe(self, outcome: Outcome) -> None:
        """Learn from a pass, whoever proposed its nodes."""
        ...
