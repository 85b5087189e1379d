"""Qwen3-VL without experts: a tower for frames in pairs, each behind its time in words, and a Qwen3.

A window is a video of 8 frames a second. Features of the tower's middle layers are added behind the first
layers of the language model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossspec_ros.models.base import FRAMES, Chunk, InputSpec
from crossspec_ros.models.config_files import BICUBIC, HALF, processor_settings
from crossspec_ros.models.transformers_family import (
    Prompt,
    TransformersTarget,
    TransformersVideoModel,
    Values,
)

if TYPE_CHECKING:
    import numpy as np
    from tokenizers import Tokenizer
    from torch import Tensor
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

VIDEO = "<|video_pad|>"
BEGIN, END, _TURN, _TURN_END = "<|vision_start|>", "<|vision_end|>", "<|im_start|>", "<|im_end|>"
_MOST_TOKENS = 256
"""Tokens of a unit of frames. Its own processor would take thousands for so short a video."""


Features = tuple[Chunk, int]
"""Tokens of a unit of frames, in their rows and columns, and its number of frames."""


class Qwen3VL(TransformersVideoModel):
    """Qwen3-VL behind `VideoTarget`; its tower encodes each unit on its own."""

    axes = 3
    module: Qwen3VLForConditionalGeneration

    def __init__(self, module: Any, tokenizer: Tokenizer, spec: InputSpec, most_pixels: int) -> None:
        super().__init__(module, tokenizer, spec)
        self._most_pixels = most_pixels
        self._merged = module.model.visual.spatial_merge_size

    @staticmethod
    def texts(tokenizer: Tokenizer, question: str) -> Prompt:
        # The chat template puts marks around `VIDEO`, and transformers' processor puts units with their own
        # marks in place of it.
        before, after = f"{_TURN}user\n{BEGIN}", f"{END}{question}{_TURN_END}\n{_TURN}assistant\n"
        return tuple(tokenizer.encode(before).ids), tuple(tokenizer.encode(after).ids)

    def encode(self, frames: np.ndarray) -> list[Features]:
        """Features of each pair; of an odd number of frames the last is read twice."""
        import torch

        patches, grid = self.patches(frames)
        units, rows, columns = grid
        seen = self.module.model.visual(
            patches, torch.tensor([[1, rows, columns]] * units, device=self.device)
        )
        sides = (torch.arange(side // self._merged) for side in (self._merged, rows, columns))
        # Tokens of a unit differ in row or column, not in time.
        positions = torch.cartesian_prod(*sides).T
        a_unit, per_unit = positions.shape[1], self.spec.frames_per_unit
        layers: Sequence[Tensor | None] = [None] * units
        if seen.deepstack_features:
            layers = torch.stack(list(seen.deepstack_features)).split(a_unit, 1)
        return [
            (Chunk(own, positions, added), min(per_unit, len(frames) - i * per_unit))
            for i, (own, added) in enumerate(zip(seen.pooler_output.split(a_unit), layers, strict=True))
        ]

    def unit(self, features: Features, i: int) -> Chunk:
        """The `i`-th unit behind its time."""
        seen, frames = features
        first = i * self.spec.frames_per_unit
        stamp = time_stamp(first, first + frames - 1)
        return Chunk.joined([self._text(stamp + BEGIN), seen, self._text(END)])

    def patches(self, frames: np.ndarray) -> tuple[Tensor, tuple[int, int, int]]:
        """Patches of all units in turn; the number of units, and the rows and columns of patches of one."""
        import torch

        patch, per_unit = self.module.model.visual.patch_size, self.spec.frames_per_unit
        _, height, width, _ = frames.shape
        size = read_size(height, width, per_unit, patch * self._merged, self._most_pixels)
        starts = range(0, len(frames), per_unit)
        units = [unit_patches(frames[i : i + per_unit], size, per_unit, patch, self._merged) for i in starts]
        return self.own(torch.cat(units)), (len(units), size[0] // patch, size[1] // patch)

    def _text(self, text: str) -> Chunk:
        return self.words(tuple(self.tokenizer.encode(text).ids))


class Qwen3VLArchitecture(TransformersTarget):
    """A Qwen3-VL known by its config."""

    config: Qwen3VLConfig

    family = "Qwen3-VL"
    transformers_class = "Qwen3VLForConditionalGeneration"
    unquantized = ("lm_head", "model.visual")
    needs = (VIDEO, BEGIN, END, _TURN, _TURN_END)
    only = (("text_config", "model_type", ("qwen3_vl_text",)),)

    @classmethod
    def read_spec(cls, folder: Path, values: Values, vision: Values, text: Values) -> InputSpec:
        factor = int(vision.get("patch_size", 16)) * int(vision.get("spatial_merge_size", 2))
        per_unit = int(vision.get("temporal_patch_size", 2))
        tokens = cls.most_pixels(folder, factor) // factor**2
        if min(tokens, per_unit) < 1:
            raise ValueError(f"{tokens} tokens for {per_unit} frames")
        # A frame of 16:9 that travels in this size is read as it is.
        size = max(1, math.isqrt(tokens * 9 // 16)) * factor
        # No tokenizer makes more tokens of a text than it has characters.
        frame_tokens = -(-FRAMES // per_unit) * (len(time_stamp(0, 0)) + tokens + 2)
        room = int(text.get("max_position_embeddings", 128000))
        layers = len(vision.get("deepstack_visual_indexes", (8, 16, 24)))
        return InputSpec(FRAMES, per_unit, size, frame_tokens, room, (), Qwen3VL.axes, layers)

    @classmethod
    def most_pixels(cls, folder: Path, factor: int) -> int:
        """Pixels of a frame at most, where a token has an edge of `factor` pixels.

        Those of the checkpoint's own processor for a video of a window's frames, or of `_MOST_TOKENS`.
        """
        made: dict[str, Any] = {"image_mean": HALF, "image_std": HALF, "resample": BICUBIC}
        size = processor_settings(folder, cls.family, needed=["size"], **made)["size"]
        return min(_MOST_TOKENS * factor**2, int(size["longest_edge"]) // FRAMES)

    def model(self, module: Any, tokenizer: Tokenizer) -> Qwen3VL:
        vision: Any = self.config.vision_config
        most = self.most_pixels(self.folder, vision.patch_size * vision.spatial_merge_size)
        return Qwen3VL(module, tokenizer, self.spec, most)


FAMILY = Qwen3VLArchitecture


def read_size(height: int, width: int, per_unit: int, factor: int, most: int) -> Any:
    """Height and width in which a frame of at most `most` pixels is read: multiples of `factor`.

    They are those of its processor for a video of a window's frames.
    """
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize

    return smart_resize(FRAMES, height, width, per_unit, factor, 0, FRAMES * most)


def unit_patches(frames: np.ndarray, size: tuple[int, int], per_unit: int, patch: int, merged: int) -> Tensor:
    """(patches, 3 * per_unit * patch * patch) float32 of up to `per_unit` (n, H, W, 3) uint8 RGB frames.

    They are read in `size`, a height and a width. The last frame fills an incomplete unit. The patches of a
    token, `merged` * `merged` of them, are consecutive.
    """
    import torch

    pixels = torch.from_numpy(frames).permute(0, 3, 1, 2)
    resized = torch.nn.functional.interpolate(pixels, size, mode="bicubic", antialias=True)
    whole = torch.cat([resized, resized[-1:].expand(per_unit - len(frames), -1, -1, -1)])
    normal = (whole.to(torch.float32) - 127.5) / 127.5
    rows, columns = (side // patch // merged for side in size)
    blocks = normal.reshape(per_unit, 3, rows, merged, patch, columns, merged, patch)
    return blocks.permute(2, 5, 3, 6, 1, 0, 4, 7).reshape(-1, 3 * per_unit * patch * patch)


def time_stamp(first: int, last: int) -> str:
    """Text before a unit with these frames: the mean of their nominal times."""
    return f"<{(first + last) / 2 / FRAMES:.1f} seconds>"
