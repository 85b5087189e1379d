"""Contracts that a model family fills: `VideoTarget` or `EventModel`, and `Architecture` before the weights.

Nothing above `models/` names a family. `registry.py` knows which file is whose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    # Who asks for a spec alone need not wait for torch.
    import numpy as np
    import torch
    from tokenizers import Tokenizer
    from torch import nn

    from crossspec_ros.models.placement import Placement

TEXT_ROOM = 512
"""Tokens in a KV cache of the target beside those of the frames."""
Model_co = TypeVar("Model_co", covariant=True)


@dataclass(frozen=True)
class Chunk:
    """Input of a language model: `embeds` (n, width) on its device, `positions` (axes, n) on the host.

    All are tensors of torch, or arrays of numpy where the model is not torch's. Positions count from the
    place where the chunk begins, 0 for its first token. What follows begins one after the largest of them, so
    that a family with three axes needs no other rule. `layers` (k, n, width) is what a tower adds to the
    hidden states behind each of the first k layers, if it does.
    """

    embeds: Any
    positions: Any
    layers: Any = None

    def __len__(self) -> int:
        return len(self.embeds)

    @classmethod
    def in_a_row(cls, embeds: Any, axes: int = 1) -> Chunk:
        """A chunk whose tokens follow one another."""
        return cls.at(embeds, range(len(embeds)), axes)

    @classmethod
    def at(cls, embeds: Any, places: Sequence[int], axes: int = 1) -> Chunk:
        """A chunk whose tokens are at these places on every axis."""
        import numpy as np

        positions = np.tile(np.array(places, np.int64), (axes, 1))
        if isinstance(embeds, np.ndarray):
            return cls(embeds, positions)
        import torch

        return cls(embeds, torch.from_numpy(positions))

    @classmethod
    def joined(cls, chunks: Sequence[Chunk]) -> Chunk:
        """Chunks that follow one another, as one; to those without `layers` nothing is added."""
        import numpy as np

        join: Any = np.concatenate
        if not isinstance(chunks[0].embeds, np.ndarray):
            import torch

            join = torch.cat
        places = accumulate((chunk.span for chunk in chunks), initial=0)
        like = next((chunk.layers for chunk in chunks if chunk.layers is not None), None)
        return cls(
            join([chunk.embeds for chunk in chunks]),
            join([place + chunk.positions for place, chunk in zip(places, chunks, strict=False)], 1),
            None if like is None else join([chunk._layers_like(like) for chunk in chunks], 1),
        )

    def cut(self, count: int) -> Chunk:
        """Its first `count` tokens."""
        layers = None if self.layers is None else self.layers[:, :count]
        return Chunk(self.embeds[:count], self.positions[:, :count], layers)

    @property
    def span(self) -> int:
        """Distance from where the chunk begins to what follows."""
        return int(self.positions.max()) + 1 if len(self) else 0

    def _layers_like(self, like: Any) -> Any:
        if self.layers is not None:
            return self.layers
        import numpy as np

        shape = len(like), len(self), like.shape[2]
        return np.zeros(shape, like.dtype) if isinstance(like, np.ndarray) else like.new_zeros(shape)


@dataclass(frozen=True)
class InputSpec:
    """Input that a target takes, known from its config alone.

    A window has `frames` frames with a shortest edge of `image_size` pixels; `frames_per_unit` of them are
    read together. With what is written between them they take `frame_tokens` tokens in all, or less where
    they are smaller, and the longest sequence has `most_tokens`. A response ends with one of `eos_ids`; the
    first is that of the text itself. Positions have so many `axes`. The tower adds to the hidden states
    behind the first `added_layers` layers.
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
    def unit_tokens(self) -> float:
        """Tokens that a unit takes, with what is written around it."""
        return self.frame_tokens / -(-self.frames // self.frames_per_unit)


class LanguageModel(Protocol):
    """Contract of both models: text in, hidden states to logits out."""

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
    def vocabulary(self) -> int:
        """Number of token ids for which it has embeddings."""
        ...

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of embeddings, keys and values, whatever the weights are."""
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
        """The chunk before the frames."""
        ...

    def encode(self, frames: np.ndarray) -> Sequence[Any]:
        """Features by the vision tower of each unit of (n, H, W, 3) uint8 RGB frames, wherever they stand.

        The last unit may lack frames.
        """
        ...

    def unit(self, features: Any, i: int) -> Chunk:
        """The `i`-th unit, of what `encode` made of its frames."""
        ...

    def closing(self, question: str) -> Chunk:
        """The chunk after the frames, up to where the response begins."""
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


@dataclass(frozen=True)
class Sizes:
    """Counts of the numbers that a model keeps and works with, beside its weights.

    An embedding has `width`, what a tower makes of a token `features`, a row of logits `vocabulary`,
    attention `heads`. In a KV cache a token takes `cached`; inside a layer `layer` a token live at once, in a
    pass of so many `patches` through the vision tower `tower` in all. A quantised weight is unpacked for a
    pass, at most `unpacked` numbers at a time.
    """

    width: int
    features: int
    vocabulary: int
    heads: int
    cached: int
    layer: int
    patches: int
    tower: int
    unpacked: int


class Architecture(Protocol[Model_co]):
    """A model known by its configs, those of a checkpoint's folder or those of a release."""

    @property
    def folder(self) -> Path | None:
        """Folder of the checkpoint, where there is one."""
        ...

    @property
    def unquantized(self) -> tuple[str, ...]:
        """Names of modules that stay as they are: beside the language model they are small."""
        ...

    @property
    def sizes(self) -> Sizes: ...

    def tokenizer(self) -> Tokenizer:
        """The folder's tokenizer; raises InputError where it is missing, damaged, or another checkpoint's."""
        ...

    def skeleton(self) -> Any:
        """The module without numbers, on torch's meta device; raises InputError where there is none such."""
        ...

    def examine(self) -> None:
        """Raise InputError where a file of the weights is missing or damaged."""
        ...

    def load(self, placement: Placement) -> Any:
        """The module with the folder's weights, as it is placed.

        Raises InputError that names the file which is missing or damaged, or does not fit the others.
        """
        ...

    def model(self, module: Any, tokenizer: Tokenizer) -> Model_co:
        """The module behind the contract."""
        ...


class TargetArchitecture(Architecture[VideoTarget], Protocol):
    """Architecture of a target."""

    @property
    def spec(self) -> InputSpec: ...


DraftArchitecture = Architecture[EventModel]
"""Architecture of an event draft."""


def to_device(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Host values on `device`; the copy goes into the current stream, and nobody waits for it."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)
