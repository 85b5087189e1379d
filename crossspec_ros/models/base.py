"""Contracts of the model families, `VideoTarget` and `EventModel`, and their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    # Reading a spec must not import torch.
    import numpy as np
    import torch
    from tokenizers import Tokenizer

FRAMES = 8
"""Default number of frames in a window, one in each of the eight slots of a second."""
TEXT_ROOM = 512
"""Room in the target's KV cache for text, in tokens."""


@dataclass(frozen=True)
class Chunk:
    """Part of a language model's input: `embeds` (n, width) on its device, `positions` (axes, n) on the host.

    Both are torch tensors, or numpy arrays for llama.cpp. Positions start at 0, and the next chunk starts
    after the largest position. `layers` (k, n, width) are features of the vision tower. They are added to the
    hidden states after each of the first k layers.
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
    def at(cls, embeds: Any, positions: Sequence[int], axes: int = 1) -> Chunk:
        """Return a chunk whose tokens have these positions on every axis."""
        library = _library(embeds)
        return cls(embeds, library.asarray([positions] * axes, dtype=library.int64))

    @classmethod
    def joined(cls, chunks: Sequence[Chunk]) -> Chunk:
        """Join consecutive chunks; missing `layers` become zeros."""
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
        """Distance from the start of this chunk to the start of the next one, in positions."""
        return int(self.positions.max()) + 1 if len(self) else 0


@dataclass(frozen=True)
class InputSpec:
    """Sizes of a target's input, from its config.

    Attributes:
        frames: frames of a window.
        frames_per_unit: frames that the tower encodes together. They form a unit, the smallest prefill.
        image_size: shortest edge of a frame in pixels.
        frame_tokens: largest number of tokens of all frames, with the text between them.
        most_tokens: largest number of tokens in a sequence.
        eos_ids: ids that end a response, the language model's own first.
        axes: axes of a position.
        added_layers: decoder layers after which features of the tower are added.
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
        """Return the number of units in a window."""
        return -(-self.frames // self.frames_per_unit)

    def is_half(self, units: int) -> bool:
        """Return whether this number of units has at least half of a window's frames."""
        return 2 * units * self.frames_per_unit >= self.frames


class EventImageSpec(NamedTuple):
    """Event images of a window: their number, the milliseconds of events in each, and their shortest edge.

    With 0 milliseconds an image has all events of its slice, else those of the densest milliseconds. With 0
    pixels an image has the sensor's size.
    """

    images: int = 5
    dense_ms: int = 0
    size: int = 0


DRAFT_IMAGES = {"EventChat_llama": EventImageSpec(5), "eventgpt_plus_qwen": EventImageSpec(8, dense_ms=25)}
"""Event images of event models by `model_type`, without their sizes."""


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
    """A video language model that reads a window in chunks: opening, units of frames, closing.

    Reading the chunks one after the other must give the same result as reading them in one pass.
    """

    spec: InputSpec

    def prompt_ids(self, question: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the token ids of the text before and after the frames; thread-safe, without weights."""

    def opening(self) -> Chunk:
        """Return the chunk of text before the frames."""

    def encode(self, frames: np.ndarray) -> Sequence[Any]:
        """Return the vision tower's features of each unit of (n, H, W, 3) uint8 RGB frames.

        They do not depend on the position in the window. The last unit may be incomplete.
        """

    def unit(self, features: Any, i: int) -> Chunk:
        """Return the chunk of the window's `i`-th unit, from its features."""

    def closing(self, question: str) -> Chunk:
        """Return the chunk after the frames, up to the start of the response."""


class EventModel(LanguageModel, Protocol):
    """A language model that drafts from `event_images` event images of `image_size` pixels a window.

    `room` is the capacity in tokens for prompt and draft. Longer drafts get a larger buffer.
    """

    room: int
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
    """Return the module of these values: torch or numpy, which have the functions used here in common."""
    return import_module(type(values).__module__.partition(".")[0])
