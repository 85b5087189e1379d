"""Draft heads: small trained proposers, and the pairs of states that they learn from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crossspec_ros.drafting.proposer import Context, PassResult, Proposer
from crossspec_ros.models.base import EventModel, VideoTarget
from crossspec_ros.models.text_tokenizer import tokenizer_digest

IGNORED = -100
"""Stands for a missing token, as in torch's cross entropy."""


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
            tokenizer_digest(target.tokenizer)[:32],
        )


@dataclass(frozen=True)
class Pairs:
    """A batch of b windows with the states of both models, padded at their ends.

    The question has q tokens, and responses have up to t. Fields of the draft are None without a draft that
    has the target's tokens.
    """

    tokens: Tensor
    """(b, t) of the target's own response, IGNORED behind its end."""
    question: Tensor
    """(q,) token ids."""
    states: Tensor
    """(b, q - 1 + t, width) last hidden states of the target; token i was chosen from that at q - 1 + i."""
    taps: Tensor
    """(b, q - 1 + t, 3 * width) inputs of the tapped layers at the same positions, side by side."""
    frames: Tensor
    """(b, f, width) embeddings of the frames."""
    frame_mask: Tensor
    """(b, f) bool, False where padded."""
    units: tuple[int, ...]
    """Share of f that each group of frames takes."""
    draft_states: Tensor | None = None
    """(b, t, draft width) from which the draft would choose each token, after the target's tokens."""
    draft_tokens: Tensor | None = None
    """(b, t) the draft's choices; IGNORED behind the end."""

    def to(self, device: torch.device | str, **options: Any) -> Pairs:
        """Return the batch on a device."""
        fields: dict[str, Any] = {name: one for name, one in vars(self).items() if isinstance(one, Tensor)}
        return replace(self, **{name: one.to(device, **options) for name, one in fields.items()})

    @property
    def is_token(self) -> Tensor:
        """(b, t) bool, False behind the responses' ends."""
        return self.tokens != IGNORED

    @property
    def early_mask(self) -> Tensor:
        """(b, f) bool, which leaves out the last group of frames, as before that has come."""
        mask = self.frame_mask.clone()
        if len(self.units) > 1:
            mask[:, -self.units[-1] :] = False
        return mask

    @property
    def choosing(self) -> Tensor:
        """(b, t, width) the target's states from which it chose each token."""
        return self.states[:, len(self.question) - 1 :]


class TargetReader(nn.Module, ABC):
    """A module that learns from `Pairs` and uses the target's embeddings and head.

    These are none of its own parameters.
    """

    kind: ClassVar[str]
    """Name of its class in files."""
    needs: frozenset[str] = frozenset()
    """Inputs: "hidden" (the target's states, from the second pass on) or "frames"."""
    learns_from: frozenset[str] = frozenset()
    """Optional fields of `Pairs` from which it learns."""

    def __init__(self, sizes: Sizes, **options: Any) -> None:
        super().__init__()
        self.sizes, self.options = sizes, options
        self._target: tuple[VideoTarget, ...] = ()

    def load(self, target: VideoTarget) -> None:
        """Set the target, which it needs to draft and to learn."""
        # A tuple keeps the target's parameters out of this module.
        self._target = (target,)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the target's embeddings (..., width) of token ids; any for ids out of its vocabulary."""
        table = self._target[0].body.get_input_embeddings()
        return table(tokens.clamp(0, table.num_embeddings - 1)).to(self.dtype)

    def read_out(self, states: Tensor) -> Tensor:
        """Return the (..., vocabulary) logits that the target's head reads from (..., width) states."""
        return self._target[0].logits(states.to(self._target[0].dtype)).float()

    def forward(self, pairs: Pairs) -> dict[str, Tensor]:
        """Return the `loss`."""
        return {"loss": self.loss(pairs)}

    @abstractmethod
    def loss(self, pairs: Pairs) -> Tensor:
        """Return the scalar that training minimises."""

    @abstractmethod
    def logits(self, pairs: Pairs) -> Tensor:
        """Return (b, t, vocabulary) logits of each token of the responses, after those before it."""

    def predicted(self, pairs: Pairs) -> Tensor | None:
        """Return the (b, t, width) states that `logits` are read from, if it predicts the target's."""
        return None


class Head(TargetReader, Proposer, ABC):
    """A draft head, which is a proposer."""

    taps: tuple[int, ...] = ()
    """Decoder layers of the target whose inputs it reads besides the last hidden states."""

    def __init__(self, sizes: Sizes, **options: Any) -> None:
        super().__init__(sizes, **options)
        self.name = self.kind

    def is_ready(self, context: Context) -> bool:
        return "frames" not in self.needs or bool(context.frames)


class StateHead(Head):
    """A head that reads the target's states of accepted tokens."""

    needs = frozenset({"hidden"})
    _observed: tuple[int, ...] = ()
    """Tokens of the response whose states it has read."""

    def is_ready(self, context: Context) -> bool:
        # A rehearsal has tokens, too, but its passes are not observed.
        has_states = bool(context.tokens) and context.tokens == self._observed
        return super().is_ready(context) and has_states

    def observe(self, result: PassResult) -> None:
        """Let the head read the states of the tokens that this pass verified."""
        if result.step is None or result.step.hidden is None:
            return
        question: tuple[int, ...] = ()
        if not result.context.tokens:
            question = self._target[0].prompt_ids(result.context.question)[1][1:]
            self.begin()
        self._observed = result.context.tokens + result.tokens
        states, taps = result.step.hidden(self.taps)
        following = (question + result.tokens)[-len(states) :]
        # A family may close its prompt with more than ids.
        beyond = len(states) - len(following)
        self.read(following, states[beyond:], taps if taps is None else taps[beyond:])

    @abstractmethod
    def begin(self) -> None:
        """Forget the states of the response before."""

    @abstractmethod
    def read(self, following: tuple[int, ...], states: Tensor, taps: Tensor | None) -> None:
        """Take the target's states (n, width) at some more tokens, and the token after each.

        In the first pass of a response, these are the states of the question.
        """


def token_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return the mean cross entropy of (..., vocabulary) logits and (...) tokens without IGNORED."""
    return F.cross_entropy(logits.flatten(0, -2), tokens.flatten(), ignore_index=IGNORED)


def scaled(sizes: Sizes, at_4096: int) -> int:
    """Return an inner width that is published for 4096 wide states, for these; a multiple of 8."""
    return max(8, round(at_4096 * sizes.width / 4096 / 8) * 8)
