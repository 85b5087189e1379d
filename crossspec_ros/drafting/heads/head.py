"""Draft heads: trained proposers."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from crossspec_ros.drafting.proposer import HEADS, Proposer
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


class Head(nn.Module, Proposer, ABC):
    """A draft head, which is a proposer. Training is in the laboratory."""

    kind: ClassVar[str]
    """The name of its file."""
    listed = HEADS

    def __init__(self, sizes: Sizes, **options: Any) -> None:
        super().__init__()
        self.sizes, self.options = sizes, options
        self._target: tuple[VideoTarget, ...] = ()

    def load(self, target: VideoTarget) -> None:
        # Modules in tuples are not registered: the target's parameters are none of the head's.
        self._target = (target,)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device
