"""Draft heads: small trained proposers, and the pairs that they learn from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crossspec_ros.drafting.proposer import Context, PassResult, Proposer
from crossspec_ros.models.base import EventModel, VideoTarget
from crossspec_ros.models.text_tokenizer import tokenizer_digest
from crossspec_ros.settings import EVENT_DRAFT

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
    """A batch of windows, and the states of both models for each of them; padded at their ends.

    There are b windows, whose question has q tokens and whose responses have up to t. What is missing in all
    of them is None: without a draft of the target's tokens all that begins with `draft`.
    """

    tokens: Tensor
    """(b, t) of the target's own response, IGNORED behind its end."""
    question: Tensor
    """(q,) token ids."""
    states: Tensor
    """(b, q - 1 + t, width) last hidden states of the target; token i was chosen from that at q - 1 + i.
    Empty, as `taps`, where captions are not the target's own."""
    taps: Tensor
    """(b, q - 1 + t, 3 * width) inputs of the tapped layers at the same places, side by side."""
    frames: Tensor
    """(b, f, width) embeddings of the frames."""
    frames_seen: Tensor
    """(b, f) bool, False where padded."""
    units: tuple[int, ...]
    """Share of f that each group of frames takes."""
    draft_states: Tensor | None = None
    """(b, t, draft width) from which the draft would choose each token, had it said the target's before."""
    draft_tokens: Tensor | None = None
    """(b, t) what it would choose; IGNORED behind the end."""

    @property
    def is_token(self) -> Tensor:
        """(b, t) bool, False behind the responses' ends."""
        return self.tokens != IGNORED

    @property
    def early_seen(self) -> Tensor:
        """(b, f) bool: the frames without those of the last group, as they are while that is awaited."""
        seen = self.frames_seen.clone()
        if len(self.units) > 1:
            seen[:, -self.units[-1] :] = False
        return seen

    @property
    def choosing(self) -> Tensor:
        """(b, t, width) the target's states from which it chose each token."""
        return self.states[:, len(self.question) - 1 :]


class Head(nn.Module, Proposer, ABC):
    """A draft head, which is a proposer: `loss` for training, `logits` for evaluation.

    The target's own embeddings and head are used as they are and are none of its parameters.
    """

    kind: ClassVar[str]
    """The name of its class in files, and its own name until it gets another."""
    needs: frozenset[str] = frozenset()
    """Inputs without which it is not asked: "hidden" (the target's states, from the second pass on),
    "events", "frames"."""
    taps: tuple[int, ...] = ()
    """Decoder layers of the target whose inputs it reads besides the last hidden states."""
    learns_from: frozenset[str] = frozenset()
    """Fields of `Pairs` that may be missing and from which it learns."""

    def __init__(self, sizes: Sizes, **options: Any) -> None:
        super().__init__()
        self.name = self.kind
        self.sizes, self.options = sizes, options
        self._target: tuple[VideoTarget, ...] = ()

    def load(self, target: VideoTarget) -> None:
        """Take what it needs of the target, before it drafts or learns."""
        # Modules in tuples are not registered: the target's parameters are none of the head's.
        self._target = (target,)

    def is_ready(self, context: Context) -> bool:
        has_events = EVENT_DRAFT in context.drafts and bool(context.drafts[EVENT_DRAFT].tokens)
        inputs = {"events": has_events, "frames": bool(context.frames)}
        return all(inputs.get(name, True) for name in self.needs)

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

    @abstractmethod
    def loss(self, pairs: Pairs) -> Tensor:
        """Return the scalar that training minimises."""

    @abstractmethod
    def logits(self, pairs: Pairs) -> Tensor:
        """Return (b, t, vocabulary) logits of each token of the responses, given those before."""

    def predicted(self, pairs: Pairs) -> Tensor | None:
        """Return the (b, t, width) states that `logits` are read from, if the head predicts the target's."""
        return None


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


def token_loss(logits: Tensor, tokens: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return the mean cross entropy of (..., vocabulary) logits and (...) tokens without IGNORED."""
    return F.cross_entropy(
        logits.flatten(0, -2), tokens.flatten(), ignore_index=IGNORED, label_smoothing=smoothing
    )


def scaled(sizes: Sizes, at_4096: int) -> int:
    """Return an inner width that is published for 4096 wide states, for these; a multiple of 8."""
    return max(8, round(at_4096 * sizes.width / 4096 / 8) * 8)
