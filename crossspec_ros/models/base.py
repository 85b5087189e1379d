"""Contracts of the model families: `VideoTarget` and `EventModel`, and what they read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    # A spec is read without torch.
    import numpy as np
    import torch
    from tokenizers import Tokenizer

FRAMES = 8
"""Frames of a window where no config names a number: one in each of the eight slots of a second."""
TEXT_ROOM = 512
"""Tokens in a KV cache of the target beside those of the frames."""


@dataclass(frozen=True)
class Chunk:
    """Input of a language model: `embeds` (n, width) on its device, `positions` (axes, n) on the host.

    Both are torch tensors, or numpy arrays for llama.cpp. Positions count from the beginning of the chunk,
    and the next chunk begins one after the largest. `layers` (k, n, width) are features of the vision tower
    that are added to the hidden states behind each of the first k layers.
    """

    embeds: Any
    positions: Any
    layers: Any = None

    def __len__(self) -> int:
        return len(self.embeds)

    @classmethod
    def in_a_row(cls, embeds: Any, axes: int = 1) -> Chunk:
        """Return a chunk of consecutive tokens."""
        return cls.at(embeds, range(len(embeds)), axes)

    @classmethod
    def at(cls, embeds: Any, places: Sequence[int], axes: int = 1) -> Chunk:
        """Return a chunk whose tokens have these positions on every axis."""
        library = _library(embeds)
        return cls(embeds, library.asarray([places] * axes, dtype=library.int64))

    @classmethod
    def joined(cls, chunks: Sequence[Chunk]) -> Chunk:
        """Return consecutive chunks as one; `layers` of those without are zeros."""
        library = _library(chunks[0].embeds)
        begins = accumulate((chunk.span for chunk in chunks), initial=0)
        positions = [begin + chunk.positions for begin, chunk in zip(begins, chunks, strict=False)]
        layers = [chunk.layers for chunk in chunks]
        if (like := next((own for own in layers if own is not None), None)) is not None:
            shapes = ((len(like), len(chunk), like.shape[2]) for chunk in chunks)
            zeros = (library.broadcast_to(library.zeros_like(like[:, :1]), shape) for shape in shapes)
            layers = [none if own is None else own for own, none in zip(layers, zeros, strict=True)]
        return cls(
            library.concatenate([chunk.embeds for chunk in chunks]),
            library.concatenate(positions, 1),
            None if like is None else library.concatenate(layers, 1),
        )

    def cut(self, count: int) -> Chunk:
        """Return its first `count` tokens."""
        layers = None if self.layers is None else self.layers[:, :count]
        return Chunk(self.embeds[:count], self.positions[:, :count], layers)

    @property
    def span(self) -> int:
        """Distance between its beginning and that of the next chunk."""
        return int(self.positions.max()) + 1 if len(self) else 0


@dataclass(frozen=True)
class InputSpec:
    """Input of a target, by its config.

    A window has `frames` frames with a shortest edge of `image_size` pixels, read in units of
    `frames_per_unit`. All of them, with the text between them, take at most `frame_tokens` tokens, and a
    sequence `most_tokens`. A response ends with one of `eos_ids`; the first is the text's own. Positions have
    `axes` axes. The tower has features for the first `added_layers` layers.
    """

    frames: int
    frames_per_unit: int
    image_size: int
    frame_tokens: int
    most_tokens: int
    eos_ids: tuple[int, ...]
    axes: int = 1
    added_layers: int = 0

    @property
    def units(self) -> int:
        """Return the number of units that a window's frames make."""
        return -(-self.frames // self.frames_per_unit)

    def is_half(self, units: int) -> bool:
        """Whether so many units have at least half of a window's frames."""
        return 2 * units * self.frames_per_unit >= self.frames


class LanguageModel(Protocol):
    """Contract of both models: embeddings of text, and logits of hidden states.

    `body` is transformers' decoder, `module` the complete model. `vocabulary` is the number of embeddings.
    """

    body: Any
    module: Any
    tokenizer: Tokenizer

    @property
    def vocabulary(self) -> int: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype: ...

    def words(self, token_ids: tuple[int, ...]) -> Chunk:
        """Return the chunk of consecutive tokens of text."""

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return (n, vocabulary) logits of (n, width) last hidden states."""


class VideoTarget(LanguageModel, Protocol):
    """A video language model that reads a window piece by piece: opening, units of frames, closing.

    Each piece must be exact when it is read on its own, after those before it.
    """

    spec: InputSpec

    def prompt_ids(self, question: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the token ids of the text before and after the frames; thread-safe, needs no weights."""

    def opening(self) -> Chunk:
        """Return the chunk before the frames."""

    def encode(self, frames: np.ndarray) -> Sequence[Any]:
        """Return the vision tower's features of each unit of (n, H, W, 3) uint8 RGB frames.

        They do not depend on the frames' places in the window. The last unit may lack frames.
        """

    def unit(self, features: Any, i: int) -> Chunk:
        """Return the `i`-th unit, from the features of its frames."""

    def closing(self, question: str) -> Chunk:
        """Return the chunk after the frames, up to the beginning of the response."""


class EventModel(LanguageModel, Protocol):
    """A language model that drafts from `event_images` images a window, of `image_size` pixels."""

    event_images: int
    image_size: int
    eos_ids: tuple[int, ...]

    def encode(self, images: np.ndarray) -> torch.Tensor:
        """Return (tokens, width) event tokens of (k, H, W, 3) uint8 RGB event images in order of time."""

    def prompt(self, question: str, event_tokens: torch.Tensor) -> Chunk:
        """Return the complete prompt with its event tokens."""


def to_device(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy host values to `device` in the current stream, without waiting."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)


def _library(values: Any) -> Any:
    """Return the module of these values, torch or numpy, which share the functions that are used here."""
    return import_module(type(values).__module__.partition(".")[0])
