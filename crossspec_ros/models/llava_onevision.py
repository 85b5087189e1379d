"""LLaVA-OneVision: a SigLIP tower looks at each frame on its own, a Qwen2 speaks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossspec_ros.models.architecture import Sizes
from crossspec_ros.models.base import Chunk, InputSpec
from crossspec_ros.models.config_files import BICUBIC, HALF, eos_ids, no_config, processor_settings
from crossspec_ros.models.transformers_family import (
    Prompt,
    TransformersTarget,
    TransformersVideoModel,
    config_values,
    numbers_in_layer,
    parsed,
    sizes,
)

if TYPE_CHECKING:
    import numpy as np
    from tokenizers import Tokenizer
    from torch import Tensor
    from transformers import LlavaOnevisionConfig, LlavaOnevisionForConditionalGeneration

_NAME = "LLaVA-OneVision"
VIDEO = "<video>"
# The released names, into those that transformers 5 gives its modules.
_RENAMED = (
    (re.compile(r"^language_model\.lm_head\."), "lm_head."),
    (re.compile(r"^language_model\.model\."), "model.language_model."),
    (re.compile(r"^(vision_tower\.|multi_modal_projector\.|image_newline$)"), r"model.\1"),
    (re.compile(r"^model\.vision_tower\.vision_model\."), "model.vision_tower."),
)

# No config says how many. A second has eight slots on the grid, one frame each.
_FRAMES = 8

# What transformers takes for a value that is left out.
_VISION = {"image_size": 224, "patch_size": 16}
_TEXT = {"max_position_embeddings": 32768, "eos_token_id": None}

# Part of the config, value, and all that it may be: other towers and languages were not compared with
# transformers, a tree's mask knows no sliding window, and without a patch there is no square to pool.
_ONLY = (
    ("text_config", "model_type", "qwen2"),
    ("text_config", "use_sliding_window", False),
    ("vision_config", "model_type", "siglip_vision_model"),
    ("", "vision_feature_select_strategy", "full"),
)


class LlavaOnevision(TransformersVideoModel):
    """LLaVA-OneVision behind `VideoTarget`; frames are pooled one by one, and a newline follows the last."""

    module: LlavaOnevisionForConditionalGeneration

    def __init__(
        self, module: LlavaOnevisionForConditionalGeneration, tokenizer: Tokenizer, spec: InputSpec
    ) -> None:
        super().__init__(module, module.model.language_model, tokenizer, spec, _prompt_ids)

    def encode(self, frames: np.ndarray) -> list[Tensor]:
        """(tokens, width) of each of (n, H, W, 3) uint8 RGB frames."""
        features = self.module.model.get_video_features(self._pixels(frames)[:, None]).pooler_output
        # The last is the newline, which transformers puts behind any video.
        return list(features[:, :-1])

    def unit(self, features: Tensor, i: int) -> Chunk:
        """The tokens of a frame, whichever it is."""
        return Chunk.in_a_row(features)

    def closing(self, question: str) -> Chunk:
        """The newline after the last frame, and the text up to where the response begins."""
        import torch

        newline = self.module.model.image_newline[None]
        return Chunk.in_a_row(torch.cat([newline, super().closing(question).embeds]))

    def inputs(self, frames: np.ndarray, question: str) -> dict[str, Tensor]:
        """Ids and pixels of all (n, H, W, 3) frames, as transformers' own `generate` takes them."""
        a_frame = self.spec.frame_tokens // self.spec.frames
        # And the newline.
        video = [self.module.config.video_token_index] * (a_frame * len(frames) + 1)
        pixels = self._pixels(frames)[None]
        return self.whole_prompt(video, question) | {"pixel_values_videos": pixels}

    def _pixels(self, frames: np.ndarray) -> Tensor:
        from crossspec_ros.models.preprocess import square_pixels

        return self.own(square_pixels(frames, self.spec.image_size))


class LlavaOnevisionArchitecture(TransformersTarget):
    """A LLaVA-OneVision known by its config."""

    config: LlavaOnevisionConfig

    unquantized = ("lm_head", "model.vision_tower", "model.multi_modal_projector")
    needs = (VIDEO, "<|im_start|>", "<|im_end|>")
    renamed = _RENAMED

    @property
    def sizes(self) -> Sizes:
        vision: Any = self.config.vision_config
        patches = (vision.image_size // vision.patch_size) ** 2
        return sizes(self.config.text_config, patches * numbers_in_layer(vision))

    def module_class(self) -> type[LlavaOnevisionForConditionalGeneration]:
        from transformers import LlavaOnevisionForConditionalGeneration

        return LlavaOnevisionForConditionalGeneration

    def model(self, module: LlavaOnevisionForConditionalGeneration, tokenizer: Tokenizer) -> LlavaOnevision:
        return LlavaOnevision(module, tokenizer, self.spec)


def architecture(folder: Path) -> LlavaOnevisionArchitecture:
    """Of the checkpoint in `folder`; raises InputError as `spec`."""
    from transformers import LlavaOnevisionConfig

    found, values = spec(folder), config_values(folder)
    config = parsed(LlavaOnevisionConfig, values, folder / "config.json", _NAME)
    return LlavaOnevisionArchitecture(config, found, folder)


def spec(folder: Path) -> InputSpec:
    """What the model in `folder` takes; raises InputError where its config is of no LLaVA-OneVision, or of
    one whose parts are not those that were released."""
    values = config_values(folder)
    try:
        size, a_frame, most = _sizes(values)
        by_config = {**_TEXT, **values["text_config"]}["eos_token_id"]
    except (TypeError, ValueError, ArithmeticError) as error:
        raise no_config(folder / "config.json", _NAME, error) from error
    square = {"height": size, "width": size}
    processor_settings(folder, _NAME, image_mean=HALF, image_std=HALF, resample=BICUBIC, size=square)
    return InputSpec(_FRAMES, 1, size, _FRAMES * a_frame, most, eos_ids(folder, by_config))


def _sizes(values: Mapping[str, Any]) -> tuple[int, int, int]:
    """Edge of a frame in pixels, tokens of a frame, most tokens; raises TypeError or ValueError."""
    vision, text = {**_VISION, **values["vision_config"]}, {**_TEXT, **values["text_config"]}
    for part, name, only in _ONLY:
        found = (values[part] if part else values).get(name, only)
        if found != only:
            raise ValueError(f"{name} is {found}, not {only}")
    # A frame whose shortest edge is that of the square has no pixel less than the square. Of one in 4:3 that
    # was shrunk to it, pixels differ by 1.4 of 255 from those of the square made at once, in the mean.
    size = int(vision["image_size"])
    patches = size // int(vision["patch_size"])
    if patches < 1:
        raise ValueError(f"image_size {size} is less than a patch")
    # Pooled to half, rounded up.
    return size, (-(-patches // 2)) ** 2, int(text["max_position_embeddings"])


def _prompt_ids(tokenizer: Tokenizer, question: str) -> Prompt:
    """Those of the released chat template, before and after the video tokens."""
    whole = tokenizer.encode(f"<|im_start|>user {VIDEO}\n{question}<|im_end|><|im_start|>assistant\n")
    at = whole.tokens.index(VIDEO)
    return tuple(whole.ids[:at]), tuple(whole.ids[at + 1 :])
