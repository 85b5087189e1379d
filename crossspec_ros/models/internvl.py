"""InternVL3 and 3.5 in transformers' port: an InternViT that encodes each frame, and a Qwen.

The prompt numbers the frames, so the text before a frame depends on its index only. The settings come from
the image processor, with which the tower was trained. In 3.5 the video processor has other settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossspec_ros.models.base import FRAMES, InputSpec
from crossspec_ros.models.config_files import BICUBIC, processor_settings
from crossspec_ros.models.transformers_family import (
    FrameByFrameModel,
    Prompt,
    TransformersTarget,
    Values,
    config_values,
    split_ids,
)

if TYPE_CHECKING:
    import numpy as np
    from tokenizers import Tokenizer
    from torch import Tensor
    from transformers import InternVLConfig, InternVLForConditionalGeneration

START, END = "<|im_start|>", "<|im_end|>"
BEGIN, CLOSE = "<img>", "</img>"

_AROUND_TOKENS = 2
_FRAME_NAME_TOKENS = 5
"""Tokens of the line break and the name before a frame, in the released tokenizers."""
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of ImageNet, from the released image processors."""


class InternVL(FrameByFrameModel):
    """`VideoTarget` of InternVL. The name of a frame is in its chunk; that of the first is in the opening."""

    module: InternVLForConditionalGeneration

    @staticmethod
    def texts(tokenizer: Tokenizer, question: str) -> Prompt:
        """Return the ids of the released chat template before the frames, with a name, and after them."""
        before, after = f"{START}user\n{_frame_name(0)}", f"\n{question}{END}\n{START}assistant\n"
        return split_ids(tokenizer, f"{before}{BEGIN}{CLOSE}{after}", BEGIN, _AROUND_TOKENS)

    def encode(self, frames: np.ndarray) -> list[Tensor]:
        return list(self.module.model.get_image_features(self.pixels(frames)).pooler_output)

    def around(self, i: int) -> tuple[int, ...]:
        """Return the ids around a frame; the name of the first is in the opening."""
        # The context of special tokens gives the same ids as in the prompt.
        ids = self.tokenizer.encode(f"{CLOSE}\n{_frame_name(i)}{BEGIN}{CLOSE}").ids
        return tuple(ids[1:] if i else ids[-_AROUND_TOKENS:])

    def pixels(self, frames: np.ndarray) -> Tensor:
        from crossspec_ros.models.preprocess import square_pixels

        return self.to_model(square_pixels(frames, self.spec.image_size, MEAN, STD))


class InternVLArchitecture(TransformersTarget):
    """An InternVL checkpoint, described by its config."""

    config: InternVLConfig

    family, model_class = "InternVL", InternVL
    transformers_class = "InternVLForConditionalGeneration"
    special_tokens = (START, END, BEGIN, CLOSE)
    # Tree masks do not support sliding windows, and pixel shuffle needs patches without a class token.
    supported = (
        ("text_config", "model_type", ("qwen2", "qwen3")),
        ("text_config", "use_sliding_window", (False,)),
        ("vision_config", "model_type", ("internvl_vision",)),
        ("", "vision_feature_select_strategy", ("default",)),
    )

    @classmethod
    def of_folder(cls, folder: Path) -> InternVLArchitecture:
        architecture = super().of_folder(folder)
        text: Any = architecture.config.text_config
        rope = text.rope_parameters
        if rope["rope_type"] == "dynamic":
            # Dynamic scaling changes nothing within the largest position, which the spec does not exceed. But
            # it reads positions on the host, which a captured graph cannot.
            text.rope_parameters = {"rope_type": "default", "rope_theta": rope["rope_theta"]}
        return architecture

    @cached_property
    def skeleton(self) -> Any:
        # The released configs do not set the value, but their checkpoints have a head.
        config = copy(self.config)
        config.tie_word_embeddings = bool(config_values(self.folder).get("tie_word_embeddings"))
        return super(InternVLArchitecture, replace(self, config=config)).skeleton

    @classmethod
    def read_spec(cls, folder: Path, values: Values, vision: Values, text: Values) -> InputSpec:
        # A window's frames already have a shortest edge of `size`, which the square does not exceed.
        size, patch = _edge(vision.get("image_size", 448)), _edge(vision.get("patch_size", 14))
        a_frame, room = int(values.get("image_seq_length", 256)), text.get("max_position_embeddings", 32768)
        ratio = float(values.get("downsample_ratio", 0.5))
        if a_frame < 1 or a_frame != (size // patch * ratio) ** 2:
            raise ValueError(f"image_seq_length {a_frame} does not fit {size // patch} patches a side")
        # The name of the first frame is in the opening.
        frame_tokens = FRAMES * (a_frame + _AROUND_TOKENS) + (FRAMES - 1) * _FRAME_NAME_TOKENS
        made: dict[str, Any] = {"image_mean": MEAN, "image_std": STD, "size": {"height": size, "width": size}}
        processor_settings(folder, cls.family, "image_processor", resample=BICUBIC, **made)
        return InputSpec(FRAMES, 1, size, frame_tokens, int(room), ())


FAMILY = InternVLArchitecture


def _edge(size: int | Sequence[int]) -> int:
    """Return the edge of a square from one number or two in a config."""
    edges: list[int] = [size] if isinstance(size, int) else [*size]
    if len(set(edges)) != 1:
        raise ValueError(f"{edges} is not a square")
    return int(edges[0])


def _frame_name(i: int) -> str:
    return f"Frame{i + 1}: "
