"""Proposers: their inputs, their contract, and their names. They are in `drafting/proposers/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from crossspec_ros.engine.protocols import Step
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.settings import EVENT_DRAFT, GRAMMAR, MEMORY, PROPOSERS, REHEARSAL

if TYPE_CHECKING:
    import torch

    from crossspec_ros.engine.json_grammar import GrammarState


@dataclass(frozen=True)
class Draft:
    """Draft of a response as far as it is written: the target's tokens, and a probability of each."""

    tokens: tuple[int, ...] = ()
    probs: tuple[float, ...] = ()


@dataclass(frozen=True)
class Context:
    """Everything a proposer may look at before a pass. Tensors stay on their device, and may be in work."""

    question: str
    tokens: tuple[int, ...] = ()
    """Verified tokens of the response."""
    drafts: Mapping[str, Draft] = field(default_factory=dict)
    """The event draft, and the rehearsal from before the last frames came, by the proposer's name."""
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

    def is_ready(self, context: Context) -> bool:
        """Return whether its inputs are there. If not, it is not asked."""
        return True

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


def make_proposers(names: Sequence[str] = (REHEARSAL, *PROPOSERS)) -> tuple[Proposer, ...]:
    """Return a proposer for each name, in order."""
    # Here, because the memory brings numba along, and the names are needed at once.
    from crossspec_ros.drafting.proposers.chain import ChainProposer
    from crossspec_ros.drafting.proposers.grammar import GrammarProposer
    from crossspec_ros.drafting.proposers.memory import CaptionMemory

    kinds: dict[str, Callable[[], Proposer]] = {
        REHEARSAL: partial(ChainProposer, REHEARSAL),
        EVENT_DRAFT: partial(ChainProposer, EVENT_DRAFT),
        MEMORY: CaptionMemory,
        GRAMMAR: GrammarProposer,
    }
    return tuple(kinds[name]() for name in names)
