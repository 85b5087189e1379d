"""Contract of proposers, which are in `drafting/proposers/`."""

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
    """Draft of a response so far: target tokens, and the probability of each."""

    tokens: tuple[int, ...] = ()
    probs: tuple[float, ...] = ()


@dataclass(frozen=True)
class Context:
    """Inputs of proposers before a pass. Tensors are on their device; the device may still compute them."""

    question: str
    tokens: tuple[int, ...] = ()
    """Verified tokens of the response."""
    drafts: Mapping[str, Draft] = field(default_factory=dict)
    """The event draft and the last rehearsal, by the name of their proposer."""
    frames: tuple[torch.Tensor, ...] = ()
    """(n, width) embeddings of each encoded unit of frames."""
    grammar: GrammarState | None = None
    """Position of a structured answer in its schema."""

    @property
    def subject(self) -> str:
        """The question and the digest of its schema; answers with the same subject are similar."""
        return f"{self.question}\n{self.grammar.digest}" if self.grammar else self.question


@dataclass(frozen=True)
class PassResult:
    """Outcome of a pass: the accepted nodes `path` of the tree, and the new `tokens`.

    `tokens` are the accepted tokens and the bonus token, truncated at the end of the response, which then has
    `ended`. `step` is the engine's result, if there is one.
    """

    context: Context
    tree: DraftTree
    path: tuple[int, ...]
    tokens: tuple[int, ...]
    ended: bool
    step: Step | None = None


class Proposer(ABC):
    """Drafts the continuation of a response. A wrong draft costs time and changes no output.

    While a window is open, the policy calls `prepare` any number of times. Afterwards it calls `propose` and
    `observe` in turn. It calls them in the engine's thread, in torch's inference mode.
    """

    name: str

    def is_ready(self, context: Context) -> bool:
        """Return whether the inputs of `prepare` and `propose` are available."""
        return True

    def prepare(self, context: Context, budget: int, min_prob: float) -> bool:
        """Prepare for `propose` for some milliseconds; return whether there is more to do."""
        return False

    @abstractmethod
    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        """Return at most `budget` nodes, or an empty tree.

        The policy prunes nodes with a path probability below `min_prob`.
        """

    def observe(self, result: PassResult) -> None:  # noqa: B027
        """Learn from a pass, which may have nodes of other proposers."""


def make_proposers(names: Sequence[str] = (REHEARSAL, *PROPOSERS)) -> tuple[Proposer, ...]:
    """Return a proposer for each name, in order."""
    # Imported here, because the memory needs numba, which takes long to import.
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
