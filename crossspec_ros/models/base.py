"""What the engine and the drafts know of a model: the two contracts that a model family fills, one file each.

Nothing above `models/` names a family. `registry.py` knows which file is whose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    # Who asks for a spec alone need not wait for torch.
    import numpy as np
    import torch
    from tokenizers import Tokenizer
    from torch import nn


@dataclass(frozen=True)
class Chunk:
    """What a language model reads next: `embeds` (n, width) on its device, `positions` (axes, n) on the host.

    Positions count from the place where the chunk begins, 0 for its first token. What follows begins one
    after the largest of them, so that a family with three axes needs no other rule. `token_ids` are those of
    text, and empty for images.
    """

    embeds: torch.Tensor
    positions: torch.Tensor
    token_ids: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.embeds)

    @classmethod
    def in_a_row(cls, embeds: torch.Tensor, token_ids: tuple[int, ...] = ()) -> Chunk:
        """A chunk of a family with one axis, whose tokens follow one another."""
        import torch

        return cls(embeds, torch.arange(len(embeds))[None], token_ids)


@dataclass(frozen=True)
class InputSpec:
    """What a target takes, known from its config alone.

    A window has `frames` frames with a shortest edge of `image_size` pixels; `frames_per_unit` of them are
    read together. They take `frame_tokens` tokens in all, and the longest sequence has `most_tokens`. A
    response ends with one of `eos_ids`; the first is that of the text itself.
    """

    frames: int
    frames_per_unit: int
    image_size: int
    frame_tokens: int
    most_tokens: int
    eos_ids: tuple[int, ...]


class LanguageModel(Protocol):
    """What both models have: text in, hidden states to logits out."""

    @property
    def body(self) -> Any:
        """The transformers decoder that reads embeddings, a KV cache, positions and a mask."""
        ...

    @property
    def module(self) -> nn.Module:
        """All of the model, for its parameters."""
        ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype:
        """Of embeddings, keys and values, whatever the weights are."""
        ...

    def words(self, token_ids: tuple[int, ...]) -> Chunk:
        """Tokens of text that follow one another."""
        ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """(n, vocabulary) logits of (n, width) last hidden states."""
        ...


class VideoTarget(LanguageModel, Protocol):
    """A video language model that reads a window piece by piece: opening, units of frames, closing.

    Each piece must be exact when it is read on its own, after those before it.
    """

    @property
    def spec(self) -> InputSpec: ...

    def prompt_ids(self, question: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Token ids of the text before and after the frames; for any thread, and without weights."""
        ...

    def opening(self) -> Chunk:
        """What stands before the frames."""
        ...

    def unit(self, frames: np.ndarray, i: int) -> Chunk:
        """The `i`-th unit: (frames_per_unit, H, W, 3) uint8 RGB through the vision tower."""
        ...

    def closing(self, question: str) -> Chunk:
        """What stands after the frames, up to where the response begins."""
        ...


class EventModel(LanguageModel, Protocol):
    """A language model that looks at event images and drafts.

    It looks at `event_images` images a window, of which the shortest edge is `image_size` pixels.
    """

    @property
    def event_images(self) -> int: ...

    @property
    def image_size(self) -> int: ...

    @property
    def eos_ids(self) -> tuple[int, ...]: ...

    def encode(self, images: np.ndarray) -> torch.Tensor:
        """(tokens, width) event tokens of (k, H, W, 3) uint8 RGB event images in order of time."""
        ...

    def prompt(self, question: str, event_tokens: torch.Tensor) -> Chunk:
        """The whole prompt, the event tokens in their place."""
        ...


def to_device(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Host values on `device`; the copy goes into the current stream, and nobody waits for it."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)
