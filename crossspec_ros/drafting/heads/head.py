"""Draft heads: the contract of all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from crossspec_ros.drafting.proposer import Context
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.base import EventModel, VideoTarget
from crossspec_ros.models.text_tokenizer import tokenizer_digest

_DIGITS = 32
"""Length of a tokenizer's digest, which stands in messages."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the models that a head is for; the draft's are 0 without a draft.

    `target_type` and `vocabulary`, a digest of the tokenizer, distinguish targets of the same sizes.
    """

    width: int
    layers: int
    tokens: int
    draft_width: int = 0
    draft_tokens: int = 0
    target_type: str = ""
    vocabulary: str = ""

    @classmethod
    def of(cls, target: VideoTarget, draft: EventModel | None) -> Sizes:
        """Return the sizes of a pair."""
        text, event = target.body.config, draft.body.config if draft else None
        return cls(
            text.hidden_size,
            text.num_hidden_layers,
            text.vocab_size,
            event.hidden_size if event else 0,
            event.vocab_size if event else 0,
            text.model_type,
            tokenizer_digest(target.tokenizer)[:_DIGITS],
        )


class Head(nn.Module, ABC):
    """A draft head: `propose` drafts. Training is in the laboratory."""

    kind: ClassVar[str]
    """The name of its file."""
    needs: frozenset[str] = frozenset()
    """See `Proposer`."""
    taps: tuple[int, ...] = ()
    """See `Proposer`."""

    def __init__(self, sizes: Sizes, **options: Any) -> None:
        super().__init__()
        self.sizes, self.options = sizes, options
        self._target: tuple[VideoTarget, ...] = ()

    def attach(self, target: VideoTarget) -> None:
        """Let the head use the target, whose parameters are none of its own."""
        # Modules in tuples are not registered.
        self._target = (target,)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def prepare(self, context: Context) -> bool:
        """See `Proposer.prepare`."""
        return False

    def begin(self) -> None:
        """Forget the states of the response before."""

    def read(self, following: tuple[int, ...], states: Tensor, taps: Tensor | None) -> None:
        """Take the target's states (n, width) at some more tokens, and the token after each.

        In the first pass of a response, these are the states of the question.
        """

    @abstractmethod
    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        """See `Proposer.propose`; the tree has no sources."""
