"""Video-LLaVA in its Hugging Face port: a CLIP tower that encodes each frame, and a LLaMA."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossspec_ros.models.base import InputSpec
from crossspec_ros.models.config_files import BICUBIC, CLIP_MEAN, CLIP_STD, processor_settings
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
    from transformers import VideoLlavaConfig, VideoLlavaForConditionalGeneration

VIDEO = "<video>"


class VideoLlava(FrameByFrameModel):
    """`VideoTarget` of Video-LLaVA."""

    module: VideoLlavaForConditionalGeneration

    @staticmethod
    def texts(tokenizer: Tokenizer, question: str) -> Prompt:
        """Return the ids of the text in one piece; LLaMA's tokenizer would add a space to a second part."""
        return split_ids(tokenizer, VIDEO.join(target_prompt(question)), VIDEO)

    def encode(self, frames: np.ndarray) -> list[Tensor]:
        return list(self.module.model.get_video_features(self.pixels(frames)[None]).pooler_output)

    def pixels(self, frames: np.ndarray) -> Tensor:
        from crossspec_ros.models.preprocess import clip_pixels

        return self.to_model(clip_pixels(frames, self.spec.image_size))


class VideoLlavaArchitecture(TransformersTarget):
    """A Video-LLaVA checkpoint, described by its config."""

    config: VideoLlavaConfig

    family, model_class = "Video-LLaVA", VideoLlava
    unquantized = ("lm_head", "model.video_tower", "model.multi_modal_projector")
    special_tokens = (VIDEO,)
    default_eos = 2

    @classmethod
    def read_spec(cls, folder: Path, values: Values, vision: Values, text: Values) -> InputSpec:
        size, length = int(vision.get("image_size", 224)), int(values.get("video_seq_length", 2056))
        # The tower's patches and its class token.
        a_frame = (size // int(vision.get("patch_size", 32))) ** 2 + 1
        frames = length // a_frame
        made: dict[str, Any] = {"image_mean": CLIP_MEAN, "image_std": CLIP_STD, "resample": BICUBIC}
        made |= {"size": {"shortest_edge": size}, "crop_size": {"height": size, "width": size}}
        processor_settings(folder, cls.family, do_center_crop=True, **made)
        room = int(text.get("max_position_embeddings", 2048))
        return InputSpec(frames, 1, size, frames * a_frame, room, ())

    @classmethod
    @cache
    def module_class(cls) -> type[VideoLlavaForConditionalGeneration]:
        from transformers import VideoLlavaForConditionalGeneration

        class VideoLlavaModule(VideoLlavaForConditionalGeneration):
            """Video-LLaVA without the tower for still images, which videos do not use."""

            _keys_to_ignore_on_load_unexpected = [r"image_tower\."]  # noqa: RUF012

            def __init__(self, config: VideoLlavaConfig) -> None:
                super().__init__(config)
                self.model.image_tower = None

        return VideoLlavaModule


FAMILY = VideoLlavaArchitecture


def target_prompt(question: str) -> tuple[str, str]:
    """Return the text before and after the video tokens."""
    return "USER: ", f"\n{question} ASSISTANT:"
