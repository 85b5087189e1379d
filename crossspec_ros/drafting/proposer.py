"""Proposers: what they see, return and observe; each is a file in `drafting/proposers/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from crossspec_ros.engine.session import Step
from crossspec_ros.engine.tree import DraftTree

if TYPE_CHECKING:
    import numpy as np
    import torch

    from crossspec_ros.drafting.heads.head import Head
    from crossspec_ros.engine.json_grammar import GrammarState
    from crossspec_ros.models.base import VideoTarget

HEADS = "heads"
"""Stands for all learned heads."""
REHEARSAL = "rehearsal"
USUAL = ("memory", "event_draft", "grammar", HEADS)
"""Names of the proposers beside the rehearsal, the fastest first."""
_CLASSES = {
    "rehearsal": "RehearsalProposer",
    "memory": "CaptionMemory",
    "event_draft": "EventDraftProposer",
    "grammar": "GrammarProposer",
}
"""Classes by the files in `proposers/`, which are imported when they are needed."""


@dataclass(frozen=True)
class Context:
    """Knowledge at the time when the next pass is put together.

    `tokens` are the verified tokens of the response so far (none before the first pass), `prompt_ids` the
    question's, `rehearsal` what the target wrote before the last frames came, `draft_tokens` what the event
    draft has written so far with its own probabilities `draft_probs`, `feature` the (d,) pooled event feature
    of the window. `draft_states` are the event draft's (width,) hidden states behind each of its own tokens,
    which are as many as `draft_tokens` where both models speak the same tokens. `frames` are the target's
    embeddings (n, width) of each unit of frames that was encoded so far. Both stay on their device, where
    they may still be in work. `grammar` is the place of a structured answer in its schema.
    """

    question: str
    tokens: tuple[int, ...] = ()
    prompt_ids: tuple[int, ...] = ()
    rehearsal: tuple[int, ...] = ()
    draft_tokens: tuple[int, ...] = ()
    draft_probs: tuple[float, ...] = ()
    feature: np.ndarray | None = None
    draft_states: tuple[torch.Tensor, ...] = ()
    frames: tuple[torch.Tensor, ...] = ()
    grammar: GrammarState | None = None

    @property
    def subject(self) -> str:
        """Question, and the schema of its answers: to others with the same one they are like."""
        return f"{self.question}\n{self.grammar.digest}" if self.grammar else self.question


@dataclass(frozen=True)
class PassResult:
    """Outcome of a tree: the nodes `path` that the target took, and all `tokens` that this added.

    `tokens` are those of `path` and the target's own next one, cut at the end of the response; `ended` says
    that the response is complete with them. `step` is what the engine gave, where there was one.
    """

    context: Context
    tree: DraftTree
    path: tuple[int, ...]
    tokens: tuple[int, ...]
    ended: bool
    step: Step | None = None


class Proposer(ABC):
    """Guesses how a response goes on; it may be as wrong as it likes, for the target has the last word.

    `load` is called once, then for each window `start`, any number of times `prepare` while it is open, in
    turns `propose` and `observe`, and `finish`. No two calls overlap, but the engine's thread makes some of
    them, in torch's inference mode: none may wait for the engine.
    """

    name: str
    listed = ""
    """The name by which it is switched on, where that is not its own."""
    needs: frozenset[str] = frozenset()
    """Inputs without which it is not asked, of "hidden", which is there from the second pass on, "events",
    "frames" and "grammar"."""
    taps: tuple[int, ...] = ()
    """Decoder layers of the target whose inputs it reads beside the last hidden states."""

    def load(self, target: VideoTarget) -> None:  # noqa: B027
        """Take what it needs of the target."""

    def start(self, window: int) -> None:  # noqa: B027
        """The window of this index has opened."""

    def prepare(self, context: Context, budget: int, worth: float) -> bool:
        """Look up while the window is open what `propose` will be asked; learn nothing from it.

        Some milliseconds at a time: the last frame may come meanwhile. Returns whether there is more to do.
        """
        return False

    @abstractmethod
    def propose(self, context: Context, budget: int, worth: float) -> DraftTree:
        """At most `budget` nodes; those with a path probability below `worth` would not be verified.

        None where it knows nothing.
        """

    def observe(self, result: PassResult) -> None:  # noqa: B027
        """Learn from a pass, whoever proposed its nodes."""

    def finish(self) -> None:  # noqa: B027
        """The window's caption is out."""


def make_proposers(
    names: Sequence[str], heads: Mapping[str, Head] = MappingProxyType({})
) -> tuple[Proposer, ...]:
    """Return one proposer for each name, in order; raise KeyError for an unknown name.

    `HEADS` stands for one proposer for each of the loaded `heads`, by their names.
    """
    made: list[Proposer] = []
    for name in names:
        if name == HEADS:
            for own, head in heads.items():
                # Who has none need not wait for torch.
                from crossspec_ros.drafting.proposers.heads import HeadProposer

                made.append(HeadProposer(own, head))
        else:
            made.append(_class(name)())
    return tuple(made)


def _class(name: str) -> type[Proposer]:
    if name not in _CLASSES:
        raise KeyError(f"there is no proposer {name}: it must be one of {', '.join((*USUAL, REHEARSAL))}")
    kind: type[Proposer] = getattr(import_module(f"{__package__}.proposers.{name}"), _CLASSES[name])
    return kind
