"""Video-LLaVA in its Hugging Face port: a CLIP tower looks at each frame on its own, a LLaMA speaks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from crossspec_ros.errors import InputError
from crossspec_ros.models.base import InputSpec, Sizes, TargetArchitecture
from crossspec_ros.models.config_files import (
    BICUBIC,
    CLIP_MEAN,
    CLIP_STD,
    config_errors,
    eos_ids,
    processor_settings,
    read_config,
)
from crossspec_ros.models.transformers_family import (
    LANGUAGE_RENAMED,
    FrameByFrameModel,
    Prompt,
    TransformersTarget,
    config_parts,
    config_values,
    sizes,
)

if TYPE_CHECKING:
    import numpy as np
    from tokenizers import Tokenizer
    from torch import Tensor
    from transformers import CLIPVisionConfig, VideoLlavaConfig, VideoLlavaForConditionalGeneration

_NAME = "Video-LLaVA"
VIDEO = "<video>"
PORT = "LanguageBind/Video-LLaVA-7B-hf"
"""Hub id of the port."""

# What transformers takes for a value that is left out.
_VISION = {"image_size": 224, "patch_size": 32}
_TEXT = {"max_position_embeddings": 2048, "eos_token_id": 2}
_VIDEO_SEQ_LENGTH = 2056


class VideoLlava(FrameByFrameModel):
    """Video-LLaVA behind `VideoTarget`."""

    module: VideoLlavaForConditionalGeneration

    def __init__(
        self, module: VideoLlavaForConditionalGeneration, tokenizer: Tokenizer, spec: InputSpec
    ) -> None:
        super().__init__(module, module.model.language_model, tokenizer, spec, _prompt_ids)

    def encode(self, frames: np.ndarray) -> list[Tensor]:
        """(tokens, width) of each of (n, H, W, 3) uint8 RGB frames."""
        return list(self.module.model.get_video_features(self._pixels(frames)[None]).pooler_output)

    def inputs(self, frames: np.ndarray, question: str) -> dict[str, Tensor]:
        """Ids and pixels of all (n, H, W, 3) frames, as transformers' own `generate` takes them."""
        frame = [self.module.config.video_token_index] * (self.spec.frame_tokens // self.spec.frames)
        ids, pixels = self.video_ids(len(frames), frame), self._pixels(frames)[None]
        return self.whole_prompt(ids, question) | {"pixel_values_videos": pixels}

    def _pixels(self, frames: np.ndarray) -> Tensor:
        from crossspec_ros.models.preprocess import clip_pixels

        return self.own(clip_pixels(frames, self.spec.image_size))


class VideoLlavaArchitecture(TransformersTarget):
    """A Video-LLaVA known by its config."""

    config: VideoLlavaConfig

    family, config_class = _NAME, "VideoLlavaConfig"
    unquantized = ("lm_head", "model.video_tower", "model.multi_modal_projector")
    needs = (VIDEO,)
    renamed = (
        *LANGUAGE_RENAMED,
        (re.compile(r"^((video|image)_tower|multi_modal_projector)\."), r"model.\1."),
        (re.compile(r"^(model\.\w+_tower)\.vision_model\."), r"\1."),
    )

    @property
    def sizes(self) -> Sizes:
        from crossspec_ros.models.llama_clip import clip_numbers

        vision = cast("CLIPVisionConfig", self.config.vision_config)
        return sizes(self.config.text_config, clip_numbers(vision, 1))

    def module_class(self) -> type[VideoLlavaForConditionalGeneration]:
        return _without_image_tower()

    def model(self, module: VideoLlavaForConditionalGeneration, tokenizer: Tokenizer) -> VideoLlava:
        return VideoLlava(module, tokenizer, self.spec)


def architecture(folder: Path) -> VideoLlavaArchitecture:
    """Architecture of the checkpoint in `folder`; raises InputError as `spec`."""
    return VideoLlavaArchitecture.of_folder(folder, spec(folder))


def released() -> TargetArchitecture:
    """LanguageBind/Video-LLaVA-7B-hf: LLaMA-7B behind CLIP ViT-L/14 at 224 pixels, 8 frames of 257 tokens."""
    from transformers import VideoLlavaConfig

    from crossspec_ros.models.llama_clip import EOS_7B, clip_l, llama_7b

    config = VideoLlavaConfig(
        text_config=llama_7b(32064),
        vision_config=clip_l(224),
        image_seq_length=256,
        video_seq_length=8 * 257,
    )
    return VideoLlavaArchitecture(config, _spec_of(config.to_dict(), (EOS_7B,)))


def _prompt_ids(tokenizer: Tokenizer, question: str) -> Prompt:
    before, after = target_prompt_ids(tokenizer, question)
    return tuple(before), tuple(after)


def target_prompt(question: str) -> tuple[str, str]:
    """Text before and after the video tokens of Video-LLaVA."""
    return "USER: ", f"\n{question} ASSISTANT:"


def target_prompt_ids(tokenizer: Tokenizer, question: str) -> tuple[list[int], list[int]]:
    """Token ids before and after the video tokens of Video-LLaVA.

    Of the text as a whole: on its own, what comes after would begin with a space in LLaMA's tokenizer.
    """
    whole = tokenizer.encode(VIDEO.join(target_prompt(question)))
    at = whole.tokens.index(VIDEO)
    return whole.ids[:at], whole.ids[at + 1 :]


@cache
def _without_image_tower() -> type[VideoLlavaForConditionalGeneration]:
    from transformers import VideoLlavaForConditionalGeneration

    class VideoLlavaModule(VideoLlavaForConditionalGeneration):
        """Video-LLaVA without the tower for still images, through which no video goes."""

        def __init__(self, config: VideoLlavaConfig) -> None:
            super().__init__(config)
            self.model.image_tower = None

    return VideoLlavaModule


def spec(folder: Path) -> InputSpec:
    """Spec of the model in `folder`; raises InputError, also for the original Video-LLaVA."""
    file = folder / "config.json"
    refuse_ancestor(file, read_config(file, ["model_type"]))
    values = config_values(folder)
    with config_errors(file, _NAME):
        found = _spec_of(values, ())
    size = found.image_size
    processor_settings(
        folder,
        _NAME,
        image_mean=CLIP_MEAN,
        image_std=CLIP_STD,
        resample=BICUBIC,
        size={"shortest_edge": size},
        do_center_crop=True,
        crop_size={"height": size, "width": size},
    )
    by_config = {**_TEXT, **values["text_config"]}["eos_token_id"]
    return replace(found, eos_ids=eos_ids(folder, by_config))


def _spec_of(values: Mapping[str, Any], eos_ids: tuple[int, ...]) -> InputSpec:
    """Spec of a model with these values in its config; raises TypeError or ValueError for wrong ones."""
    vision, text = config_parts(values, _VISION, _TEXT)
    size, length = int(vision["image_size"]), int(values.get("video_seq_length", _VIDEO_SEQ_LENGTH))
    # The patches and the class token.
    a_frame = (size // int(vision["patch_size"])) ** 2 + 1
    if length < a_frame:
        raise ValueError(f"video_seq_length {length} is less than a frame's {a_frame} tokens")
    frames = length // a_frame
    return InputSpec(frames, 1, size, frames * a_frame, int(text["max_position_embeddings"]), eos_ids)


def refuse_ancestor(file: Path, values: Mapping[str, Any]) -> None:
    """Raise InputError for the original Video-LLaVA."""
    classes = values.get("architectures")
    is_original = isinstance(classes, list) and "LlavaLlamaForCausalLM" in classes
    if is_original or "mm_video_tower" in values:
        raise InputError(
            f"'{file}' is of the original Video-LLaVA, whose video tower attends over time, so that its "
            f"frames cannot be read one by one as they come: take its port {PORT}"
        )
