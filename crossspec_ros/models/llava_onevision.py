"""LLaVA-OneVision: a SigLIP tower that encodes each frame, and a Qwen2."""

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
    split_ids,
)

if TYPE_CHECKING:
    import numpy as np
    from tokenizers import Tokenizer
    from torch import Tensor
    from transformers import LlavaOnevisionConfig, LlavaOnevisionForConditionalGeneration

VIDEO = "<video>"


class LlavaOnevision(FrameByFrameModel):
    """`VideoTarget` of LLaVA-OneVision, with pooled frames and a newline embedding after the last."""

    module: LlavaOnevisionForConditionalGeneration

    @staticmethod
    def texts(tokenizer: Tokenizer, question: str) -> Prompt:
        """Return the ids of the released chat template before and after the video tokens."""
        text = f"<|im_start|>user {VIDEO}\n{question}<|im_end|><|im_start|>assistant\n"
        return split_ids(tokenizer, text, VIDEO)

    def encode(self, frames: np.ndarray) -> list[Tensor]:
        features = self.module.model.get_video_features(self.pixels(frames)[:, None]).pooler_output
        # transformers appends the newline to any video.
        return list(features[:, :-1])

    def closing(self, question: str) -> Chunk:
        """Return the newline after the last frame, and the text up to the response."""
        import torch

        newline = self.module.model.image_newline[None]
        return Chunk.in_a_row(torch.cat([newline, super().closing(question).embeds]))

    def pixels(self, frames: np.ndarray) -> Tensor:
        from crossspec_ros.models.preprocess import square_pixels

        return self.to_model(square_pixels(frames, self.spec.image_size))


class LlavaOnevisionArchitecture(TransformersTarget):
    """A LLaVA-OneVision checkpoint, described by its config."""

    config: LlavaOnevisionConfig

    family, model_class = "LLaVA-OneVision", LlavaOnevision
    transformers_class = "LlavaOnevisionForConditionalGeneration"
    special_tokens = (VIDEO, "<|im_start|>", "<|im_end|>")
    # Tree masks do not support sliding windows, and pooling needs the full square of patches.
    supported = (
        ("text_config", "model_type", ("qwen2",)),
        ("text_config", "use_sliding_window", (False,)),
        ("vision_config", "model_type", ("siglip_vision_model",)),
        ("", "vision_feature_select_strategy", ("full",)),
    )

    @classmethod
    def read_spec(cls, folder: Path, values: Values, vision: Values, text: Values) -> InputSpec:
        # A window's frames already have a shortest edge of `size`, which the square does not exceed.
        size = int(vision.get("image_size", 224))
        patches = size // int(vision.get("patch_size", 16))
        room = int(text.get("max_position_embeddings", 32768))
        # Pooling halves the edge and rounds up.
        a_frame = (-(-patches // 2)) ** 2
        square = {"height": size, "width": size}
        processor_settings(folder, cls.family, image_mean=HALF, image_std=HALF, resample=BICUBIC, size=square)
        return InputSpec(FRAMES, 1, size, FRAMES * a_frame, room, ())


FAMILY = LlavaOnevisionArchitecture
