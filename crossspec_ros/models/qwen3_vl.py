"""Qwen3-VL without experts: a tower that encodes pairs of frames, and a Qwen3.

A window is a video of 8 frames per second, with a time stamp as text before each pair. Features of the
tower's middle layers are added after the first layers of the language model (deepstack).
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
_MAX_TOKENS = 256
"""Largest number of tokens of a unit; transformers' processor would use thousands for a short video."""


Features = tuple[Chunk, int]
"""Tokens of a unit of frames with their positions, and the number of its frames."""


class Qwen3VL(TransformersVideoModel):
    """`VideoTarget` of Qwen3-VL; the tower encodes units separately."""

    axes = 3
    module: Qwen3VLForConditionalGeneration

    def __init__(self, module: Any, tokenizer: Tokenizer, spec: InputSpec, max_pixels: int) -> None:
        super().__init__(module, tokenizer, spec)
        self._max_pixels = max_pixels
        self._merged = module.model.visual.spatial_merge_size

    @staticmethod
    def texts(tokenizer: Tokenizer, question: str) -> Prompt:
        # The chat template has marks around `VIDEO`, which transformers' processor replaces by units with
        # marks of their own.
        before, after = f"{_TURN}user\n{BEGIN}", f"{END}{question}{_TURN_END}\n{_TURN}assistant\n"
        return tuple(tokenizer.encode(before).ids), tuple(tokenizer.encode(after).ids)

    def encode(self, frames: np.ndarray) -> list[Features]:
        """Return the features of each pair; an odd last frame is repeated."""
        import torch

        patches, grid = self.patches(frames)
        units, rows, columns = grid
        encoded = self.module.model.visual(
            patches, torch.tensor([[1, rows, columns]] * units, device=self.device)
        )
        sides = (torch.arange(side // self._merged) for side in (self._merged, rows, columns))
        # Tokens of a unit differ in row or column, not in time.
        positions = torch.cartesian_prod(*sides).T
        a_unit, per_unit = positions.shape[1], self.spec.frames_per_unit
        layers: Sequence[Tensor | None] = [None] * units
        if encoded.deepstack_features:
            layers = torch.stack(list(encoded.deepstack_features)).split(a_unit, 1)
        return [
            (Chunk(own, positions, added), min(per_unit, len(frames) - i * per_unit))
            for i, (own, added) in enumerate(zip(encoded.pooler_output.split(a_unit), layers, strict=True))
        ]

    def unit(self, features: Features, i: int) -> Chunk:
        """Return the `i`-th unit after its time stamp."""
        chunk, frames = features
        first = i * self.spec.frames_per_unit
        stamp = time_stamp(first, first + frames - 1)
        return Chunk.joined([self._text(stamp + BEGIN), chunk, self._text(END)])

    def patches(self, frames: np.ndarray) -> tuple[Tensor, tuple[int, int, int]]:
        """Return the patches of all units, and their numbers: units, rows and columns in a unit."""
        import torch

        patch, per_unit = self.module.model.visual.patch_size, self.spec.frames_per_unit
        _, height, width, _ = frames.shape
        size = read_size(height, width, per_unit, patch * self._merged, self._max_pixels)
        starts = range(0, len(frames), per_unit)
        units = [unit_patches(frames[i : i + per_unit], size, per_unit, patch, self._merged) for i in starts]
        return self.to_model(torch.cat(units)), (len(units), size[0] // patch, size[1] // patch)

    def _text(self, text: str) -> Chunk:
        return self.words(tuple(self.tokenizer.encode(text).ids))


class Qwen3VLArchitecture(TransformersTarget):
    """A Qwen3-VL checkpoint, described by its config."""

    config: Qwen3VLConfig

    family = "Qwen3-VL"
    transformers_class = "Qwen3VLForConditionalGeneration"
    unquantized = ("lm_head", "model.visual")
    special_tokens = (VIDEO, BEGIN, END, _TURN, _TURN_END)
    supported = (("text_config", "model_type", ("qwen3_vl_text",)),)

    @classmethod
    def read_spec(cls, folder: Path, values: Values, vision: Values, text: Values) -> InputSpec:
        factor = int(vision.get("patch_size", 16)) * int(vision.get("spatial_merge_size", 2))
        per_unit = int(vision.get("temporal_patch_size", 2))
        tokens = cls.max_pixels(folder, factor) // factor**2
        if min(tokens, per_unit) < 1:
            raise ValueError(f"{tokens} tokens for {per_unit} frames")
        # The tower reads a 16:9 frame of this size without another resize.
        size = max(1, math.isqrt(tokens * 9 // 16)) * factor
        # A text has at most as many tokens as characters.
        frame_tokens = -(-FRAMES // per_unit) * (len(time_stamp(0, 0)) + tokens + 2)
        room = int(text.get("max_position_embeddings", 128000))
        layers = len(vision.get("deepstack_visual_indexes", (8, 16, 24)))
        return InputSpec(FRAMES, per_unit, size, frame_tokens, room, (), Qwen3VL.axes, layers)

    @classmethod
    def max_pixels(cls, folder: Path, factor: int) -> int:
        """Return the largest number of pixels in a frame; a token has an edge of `factor` pixels.

        The checkpoint's processor limits it for a video of a window's frames, and `_MAX_TOKENS` does.
        """
        made: dict[str, Any] = {"image_mean": HALF, "image_std": HALF, "resample": BICUBIC}
        size = processor_settings(folder, cls.family, needed=["size"], **made)["size"]
        return min(_MAX_TOKENS * factor**2, int(size["longest_edge"]) // FRAMES)

    def model(self, module: Any, tokenizer: Tokenizer) -> Qwen3VL:
        vision: Any = self.config.vision_config
        most = self.max_pixels(self.folder, vision.patch_size * vision.spatial_merge_size)
        return Qwen3VL(module, tokenizer, self.spec, most)


FAMILY = Qwen3VLArchitecture


def read_size(height: int, width: int, per_unit: int, factor: int, most: int) -> Any:
    """Return the height and width to which a frame is resized, as its processor does for a window.

    They are multiples of `factor`, with at most `most` pixels.
    """
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize

    return smart_resize(FRAMES, height, width, per_unit, factor, 0, FRAMES * most)


def unit_patches(frames: np.ndarray, size: tuple[int, int], per_unit: int, patch: int, merged: int) -> Tensor:
    """Return the patches of a unit, (patches, 3 * per_unit * patch * patch) float32.

    `frames` are up to `per_unit` uint8 RGB frames (n, H, W, 3), which are resized to `size` (height, width).
    The last frame fills an incomplete unit. The `merged` * `merged` patches of a token are consecutive.
    """
    import torch

    pixels = torch.from_numpy(frames).permute(0, 3, 1, 2)
    resized = torch.nn.functional.interpolate(pixels, size, mode="bicubic", antialias=True)
    complete = torch.cat([resized, resized[-1:].expand(per_unit - len(frames), -1, -1, -1)])
    normal = (complete.to(torch.float32) - 127.5) / 127.5
    rows, columns = (side // patch // merged for side in size)
    blocks = normal.reshape(per_unit, 3, rows, merged, patch, columns, merged, patch)
    return blocks.permute(2, 5, 3, 6, 1, 0, 4, 7).reshape(-1, 3 * per_unit * patch * patch)


def time_stamp(first: int, last: int) -> str:
    """Return the text before a unit with these frames: the mean of their nominal times."""
    return f"<{(first + last) / 2 / FRAMES:.1f} seconds>"
