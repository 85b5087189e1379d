"""LLaVA-OneVision: a SigLIP tower for each frame on its own, and a Qwen2."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from crossspec_ros.models.base import FRAMES, Chunk, InputSpec
from crossspec_ros.models.config_files import BICUBIC, HALF, processor_settings
from crossspec_ros.models.transformers_family import (
    FrameByFrameModel,
    Prompt,
    TransformersTarget,
    Values,
    parted,
)

if TYPE_CHECKING:
    import numpy as np
    from tokenizers import Tokenizer
    from torch import Tensor
    from transformers import LlavaOnevisionConfig, LlavaOnevisionForConditionalGeneration

VIDEO = "<video>"


class LlavaOnevision(FrameByFrameModel):
    """LLaVA-OneVision behind `VideoTarget`; frames are pooled one by one, and a newline follows the last."""

    module: LlavaOnevisionForConditionalGeneration

    @staticmethod
    def texts(tokenizer: Tokenizer, question: str) -> Prompt:
        """Ids of the released chat template, before and after the video tokens."""
        text = f"<|im_start|>user {VIDEO}\n{question}<|im_end|><|im_start|>assistant\n"
        return parted(tokenizer, text, VIDEO)

    def encode(self, frames: np.ndarray) -> list[Tensor]:
        features = self.module.model.get_video_features(self.pixels(frames)[:, None]).pooler_output
        # The last is the newline, which transformers puts behind any video.
        return list(features[:, :-1])

    def closing(self, question: str) -> Chunk:
        """The newline after the last frame, and the text up to where the response begins."""
        import torch

        newline = self.module.model.image_newline[None]
        return Chunk.in_a_row(torch.cat([newline, super().closing(question).embeds]))

    def pixels(self, frames: np.ndarray) -> Tensor:
        from crossspec_ros.models.preprocess import square_pixels

        return self.own(square_pixels(frames, self.spec.image_size))


class LlavaOnevisionArchitecture(TransformersTarget):
    """A LLaVA-OneVision known by its config."""

    config: LlavaOnevisionConfig

    family, behind = "LLaVA-OneVision", LlavaOnevision
    transformers_class = "LlavaOnevisionForConditionalGeneration"
    needs = (VIDEO, "<|im_start|>", "<|im_end|>")
    # A tree's mask knows no sliding window, and without a patch there is no square to pool.
    only = (
        ("text_config", "model_type", ("qwen2",)),
        ("text_config", "use_sliding_window", (False,)),
        ("vision_config", "model_type", ("siglip_vision_model",)),
        ("", "vision_feature_select_strategy", ("full",)),
    )

    @classmethod
    def read_spec(cls, folder: Path, values: Values, vision: Values, text: Values) -> InputSpec:
        # A frame whose shortest edge is that of the square has no pixel less than the square.
        size = int(vision.get("image_size", 224))
        patches = size // int(vision.get("patch_size", 16))
        room = int(text.get("max_position_embeddings", 32768))
        # Pooled to half, rounded up.
        a_frame = (-(-patches // 2)) ** 2
        square = {"height": size, "width": size}
        processor_settings(folder, cls.family, image_mean=HALF, image_std=HALF, resample=BICUBIC, size=square)
        return InputSpec(FRAMES, 1, size, FRAMES * a_frame, room, ())


FAMILY = LlavaOnevisionArchitecture
