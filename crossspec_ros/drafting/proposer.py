"""Proposers: their inputs, their contract, and their names; each is a file in `drafting/proposers/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from crossspec_ros.engine.protocols import Step
from crossspec_ros.engine.tree import DraftTree

if TYPE_CHECKING:
    import numpy as np
    import torch

    from crossspec_ros.engine.json_grammar import GrammarState

REHEARSAL = "rehearsal"
USUAL = ("memory", "event_draft", "grammar")
"""Names of the proposers beside the rehearsal, the fastest first."""
_CLASSES = {
    "memory": "CaptionMemory",
    "event_draft": "EventDraftProposer",
    "grammar": "GrammarProposer",
    REHEARSAL: "RehearsalProposer",
}
"""Classes by the files in `proposers/`, which are imported when they are needed."""


@dataclass(frozen=True)
class Context:
    """Everything a proposer may look at before a pass. Tensors stay on their device, and may be in work."""

    question: str
    tokens: tuple[int, ...] = ()
    """Verified tokens of the response."""
    prompt_ids: tuple[int, ...] = ()
    """Tokens of the question."""
    rehearsal: tuple[int, ...] = ()
    """Tokens that the target wrote before the last frames came."""
    draft_tokens: tuple[int, ...] = ()
    """Tokens of the event draft so far, in the target's vocabulary."""
    draft_probs: tuple[float, ...] = ()
    """The event draft's probability of each of them."""
    feature: np.ndarray | None = None
    """(d,) pooled event feature of the window."""
    draft_states: tuple[torch.Tensor, ...] = ()
    """(width,) hidden states behind each token of the event draft, in its own vocabulary."""
    frames: tuple[torch.Tensor, ...] = ()
    """(n, width) embeddings of each group of frames that the target has encoded."""
    grammar: GrammarState | None = None
    """Place of a structured answer in its schema."""

    @property
    def subject(self) -> str:
        """Question, and schema of its answer: earlier answers with the same subject are similar."""
        return f"{self.question}\n{self.grammar.digest}" if self.grammar else self.question


@dataclass(frozen=True)
class PassResult:
    """Outcome of a pass: the nodes `path` of the tree that the target accepted, and the new `tokens`.

    `tokens` are those of the path and the bonus token, cut at the end of the response; `ended` is true if the
    response is complete with them. `step` is the engine's result, if there is one.
    """

    context: Context
    tree: DraftTree
    path: tuple[int, ...]
    tokens: tuple[int, ...]
    ended: bool
    step: Step | None = None


class Proposer(ABC):
    """Guesses the continuation of a response. A wrong guess costs time, and changes no output.

    For each window come any number of `prepare` while the window is open, and `propose` and `observe` in
    turns. Calls come from the engine's thread, in torch's inference mode.
    """

    name: str
    needs: frozenset[str] = frozenset()
    """Inputs without which it is not asked: "hidden" (the target's states, from the second pass on),
    "events", "frames", "rehearsal", "grammar"."""

    def prepare(self, context: Context, budget: int, min_prob: float) -> bool:
        """Work ahead of `propose` for some milliseconds; return whether there is more to do."""
        return False

    @abstractmethod
    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        """Return at most `budget` nodes, or an empty tree.

        Nodes with a path probability below `min_prob` would not be verified.
        """

    def observe(self, result: PassResult) -> None:  # noqa: B027
        """Learn from a pass, whichever proposers its nodes come from."""


def make_proposers(names: Sequence[str]) -> tuple[Proposer, ...]:
    """Return a proposer for each name, in order.

    Raise KeyError for an unknown name.
    """
    made: list[Proposer] = []
    for name in names:
        if name in _CLASSES:
            made.append(getattr(import_module(f"{__package__}.proposers.{name}"), _CLASSES[name])())
        else:
            known = ", ".join((*USUAL, REHEARSAL))
            raise KeyError(f"there is no proposer {name}: it must be one of {known}")
    return tuple(made)
