"""InternVL3 and 3.5 in transformers' own port: an InternViT for each frame on its own, and a Qwen.

The prompt numbers the frames, so that the text before a frame depends on its place alone. The settings are
those of the image processor. In 3.5 those of the video processor contradict it, and the tower was trained
with the former.
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
    parted,
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
"""Tokens of the name before a frame, with the end of the line before it, in the released tokenizers."""
# Mean and deviation of ImageNet, as the released image processors have them.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class InternVL(FrameByFrameModel):
    """InternVL behind `VideoTarget`; each frame but the first has its name before it."""

    module: InternVLForConditionalGeneration

    @staticmethod
    def texts(tokenizer: Tokenizer, question: str) -> Prompt:
        """Ids of the released chat template, before the first frame, its name included, and after the
        last."""
        before, after = f"{START}user\n{_frame_name(0)}", f"\n{question}{END}\n{START}assistant\n"
        return parted(tokenizer, f"{before}{BEGIN}{CLOSE}{after}", BEGIN, _AROUND_TOKENS)

    def encode(self, frames: np.ndarray) -> list[Tensor]:
        return list(self.module.model.get_image_features(self.pixels(frames)).pooler_output)

    def around(self, i: int) -> tuple[int, ...]:
        """Return the ids around a frame; the name of the first belongs to the opening."""
        # The text is encoded between special tokens, as in the prompt.
        ids = self.tokenizer.encode(f"{CLOSE}\n{_frame_name(i)}{BEGIN}{CLOSE}").ids
        return tuple(ids[1:] if i else ids[-_AROUND_TOKENS:])

    def pixels(self, frames: np.ndarray) -> Tensor:
        from crossspec_ros.models.preprocess import square_pixels

        return self.own(square_pixels(frames, self.spec.image_size, MEAN, STD))


class InternVLArchitecture(TransformersTarget):
    """An InternVL known by its config."""

    config: InternVLConfig

    family, behind = "InternVL", InternVL
    transformers_class = "InternVLForConditionalGeneration"
    needs = (START, END, BEGIN, CLOSE)
    # A tree's mask knows no sliding window, and a class token among the patches leaves no square to shuffle.
    only = (
        ("text_config", "model_type", ("qwen2", "qwen3")),
        ("text_config", "use_sliding_window", (False,)),
        ("vision_config", "model_type", ("internvl_vision",)),
        ("", "vision_feature_select_strategy", ("default",)),
    )

    @classmethod
    def of_folder(cls, folder: Path) -> InternVLArchitecture:
        known = super().of_folder(folder)
        text: Any = known.config.text_config
        rope = text.rope_parameters
        if rope["rope_type"] == "dynamic":
            # It scales nothing before the most positions, which the spec does not exceed; but it would look
            # at them on the host, as no captured graph can.
            text.rope_parameters = {"rope_type": "default", "rope_theta": rope["rope_theta"]}
        return known

    @cached_property
    def skeleton(self) -> Any:
        # The released configs do not set it, and their checkpoints have a head.
        config = copy(self.config)
        config.tie_word_embeddings = bool(config_values(self.folder).get("tie_word_embeddings"))
        return super(InternVLArchitecture, replace(self, config=config)).skeleton

    @classmethod
    def read_spec(cls, folder: Path, values: Values, vision: Values, text: Values) -> InputSpec:
        # As in LLaVA-OneVision, a frame may be shrunk to the square's edge before it is stretched.
        size, patch = _edge(vision.get("image_size", 448)), _edge(vision.get("patch_size", 14))
        a_frame, room = int(values.get("image_seq_length", 256)), text.get("max_position_embeddings", 32768)
        ratio = float(values.get("downsample_ratio", 0.5))
        if a_frame < 1 or a_frame != (size // patch * ratio) ** 2:
            raise ValueError(f"image_seq_length is {a_frame}, not that of {size // patch} patches a side")
        # The name of the first belongs to the opening.
        frame_tokens = FRAMES * (a_frame + _AROUND_TOKENS) + (FRAMES - 1) * _FRAME_NAME_TOKENS
        made: dict[str, Any] = {"image_mean": MEAN, "image_std": STD, "size": {"height": size, "width": size}}
        processor_settings(folder, cls.family, "image_processor", resample=BICUBIC, **made)
        return InputSpec(FRAMES, 1, size, frame_tokens, int(room), ())


FAMILY = InternVLArchitecture


def _edge(size: int | Sequence[int]) -> int:
    """Return the edge of a square, which a config gives as one number or two."""
    edges: list[int] = [size] if isinstance(size, int) else [*size]
    if len(set(edges)) != 1:
        raise ValueError(f"{edges} is no square")
    return int(edges[0])


def _frame_name(i: int) -> str:
    return f"Frame{i + 1}: "
