"""Draft heads: the contract of all, and the pairs that they learn from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crossspec_ros.drafting.proposer import Context
from crossspec_ros.models.base import EventModel, VideoTarget
from crossspec_ros.models.text_tokenizer import tokenizer_digest

IGNORED = -100
"""In the place of a token that there is none of, as cross entropy has it."""
_DIGITS = 32
"""Length of a tokenizer's digest; enough to tell it, and to be read in a message."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the models that a head is for; the draft's are 0 without a draft.

    `target_type` and `vocabulary`, a digest of the tokenizer, tell the target from others of the same sizes.
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
        """Sizes of a pair."""
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

    def scaled(self, at_4096: int, least: int = 8) -> int:
        """An inner width that is published for 4096 wide states, for these; a multiple of 8."""
        return max(least, round(at_4096 * self.width / 4096 / 8) * 8)


@dataclass(frozen=True)
class Pairs:
    """Windows side by side, what both models made of them; padded at their ends.

    There are b windows, whose question has q tokens and whose responses have up to t. What is missing in all
    of them is None: without a draft that speaks the target's tokens all that begins with `draft` and `said`.
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
    """Share of f that each unit of frames takes."""
    draft_states: Tensor | None = None
    """(b, t, draft width) from which the draft would choose each token, had it said the target's before."""
    draft_tokens: Tensor | None = None
    """(b, t) what it would choose; IGNORED behind the end."""
    said: Tensor | None = None
    """(b, s) what the draft said by itself, in the target's tokens; IGNORED behind its end."""
    event_tokens: Tensor | None = None
    """(b, e, draft width) what the draft's tower made of the event images, all but the last."""
    feature: Tensor | None = None
    """(b, draft width) their mean."""

    @property
    def is_token(self) -> Tensor:
        """(b, t) bool, False behind the responses' ends."""
        return self.tokens != IGNORED

    @property
    def early_seen(self) -> Tensor:
        """(b, f) bool: the frames without those of the last unit, as they are while that is awaited."""
        seen = self.frames_seen.clone()
        if len(self.units) > 1:
            seen[:, -self.units[-1] :] = False
        return seen

    @property
    def choosing(self) -> Tensor:
        """(b, t, width) the target's states from which it chose each token."""
        return self.states[:, len(self.question) - 1 :]


@dataclass(frozen=True)
class Guess:
    """A tree as a head grows it, see `DraftTree`."""

    ids: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    probs: tuple[float, ...] = ()


class Head(nn.Module, ABC):
    """Learns by `loss`, tells by `logits` what it would say, and drafts by `propose`.

    The target's own embeddings and head are used as they are and are none of its parameters.
    """

    kind: ClassVar[str]
    """The name of its file."""
    needs: frozenset[str] = frozenset()
    """See `Proposer`."""
    taps: tuple[int, ...] = ()
    """See `Proposer`."""
    learns_from: frozenset[str] = frozenset()
    """Fields of `Pairs` that may be missing and from which it learns."""

    def __init__(self, sizes: Sizes, **options: Any) -> None:
        super().__init__()
        self.sizes, self.options = sizes, options
        self._target: tuple[VideoTarget, ...] = ()

    def attach(self, target: VideoTarget) -> None:
        """The target whose embeddings and head it uses."""
        # Modules in tuples are not registered.
        self._target = (target,)

    def embed(self, tokens: Tensor) -> Tensor:
        """The target's embeddings (..., width) of token ids; those out of its vocabulary are any."""
        table = self._target[0].body.get_input_embeddings()
        return table(tokens.clamp(0, table.num_embeddings - 1)).to(self.dtype)

    def read_out(self, states: Tensor) -> Tensor:
        """(..., vocabulary) logits that the target's head reads from (..., width) states."""
        return self._target[0].logits(states.to(self._target[0].dtype)).float()

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @abstractmethod
    def loss(self, pairs: Pairs) -> Tensor:
        """Scalar that training makes small."""

    @abstractmethod
    def logits(self, pairs: Pairs) -> Tensor:
        """(b, t, vocabulary): for each token of the responses, given those before, what it would say."""

    def predicted(self, pairs: Pairs) -> Tensor | None:
        """(b, t, width): the states from which it says that, of a head that predicts the target's."""
        return None

    def prepare(self, context: Context) -> bool:
        """See `Proposer.prepare`."""
        return False

    def begin(self) -> None:
        """A response begins: what was read is over."""

    def read(self, following: tuple[int, ...], states: Tensor, taps: Tensor | None) -> None:
        """The target has read some more tokens: its states (n, width) at each, and which token follows each.

        In the first step of a response, these are those of the question.
        """

    @abstractmethod
    def propose(self, context: Context, budget: int, worth: float) -> Guess:
        """See `Proposer.propose`."""


def token_loss(logits: Tensor, tokens: Tensor, smoothing: float = 0.0) -> Tensor:
    """Mean cross entropy of (..., vocabulary) logits and (...) tokens, the IGNORED left out."""
    return F.cross_entropy(
        logits.flatten(0, -2), tokens.flatten(), ignore_index=IGNORED, label_smoothing=smoothing
    )
