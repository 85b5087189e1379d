"""Video-LLaVA in its Hugging Face port: a CLIP tower looks at each frame on its own, a LLaMA speaks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import cast

import numpy as np
from tokenizers import Tokenizer
from torch import Tensor
from transformers import CLIPVisionConfig, LlamaConfig, VideoLlavaConfig, VideoLlavaForConditionalGeneration

from crossspec_ros.errors import InputError
from crossspec_ros.models.architecture import Sizes, TargetArchitecture
from crossspec_ros.models.base import Chunk, InputSpec
from crossspec_ros.models.checkpoint import load, skeleton, stored_tensors
from crossspec_ros.models.language_model import TransformersModel
from crossspec_ros.models.llama_clip import EOS_7B, clip_l, llama_7b, sizes
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.preprocess import clip_pixels
from crossspec_ros.models.text_tokenizer import load_tokenizer
from crossspec_ros.models.video_llava_config import checked, no_config, spec, spec_of

VIDEO = "<video>"
# The port's own names, into those that transformers 5 gives its modules.
_RENAMED = (
    (re.compile(r"^language_model\.lm_head\."), "lm_head."),
    (re.compile(r"^language_model\.model\."), "model.language_model."),
    (re.compile(r"^((video|image)_tower|multi_modal_projector)\."), r"model.\1."),
    (re.compile(r"^(model\.\w+_tower)\.vision_model\."), r"\1."),
)
_QUESTIONS = 64


class VideoLlavaModule(VideoLlavaForConditionalGeneration):
    """Video-LLaVA without the tower for still images, through which no video goes."""

    def __init__(self, config: VideoLlavaConfig) -> None:
        super().__init__(config)
        self.model.image_tower = None


class VideoLlava(TransformersModel):
    """Video-LLaVA behind `VideoTarget`; its frames may be read one by one, for its tower sees each alone."""

    module: VideoLlavaModule

    def __init__(self, module: VideoLlavaModule, tokenizer: Tokenizer, spec: InputSpec) -> None:
        super().__init__(module, module.model.language_model, tokenizer)
        self.spec = spec
        # Every window is asked the same, and at its close there is no time to lose.
        self._prompt_ids = lru_cache(_QUESTIONS)(partial(_prompt_ids, tokenizer))

    def prompt_ids(self, question: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Token ids of the text before and after the frames."""
        return self._prompt_ids(question)

    def opening(self) -> Chunk:
        """What stands before the frames."""
        return self.words(self.prompt_ids("")[0])

    def encode(self, frames: np.ndarray) -> Tensor:
        """(tokens, width) of a (1, H, W, 3) uint8 RGB frame."""
        pixels = self.own(clip_pixels(frames, self.spec.image_size))
        features = self.module.model.get_video_features(pixels[None]).pooler_output
        return features.flatten(0, 1)

    def unit(self, features: Tensor, i: int) -> Chunk:
        """The tokens of a frame, whichever it is."""
        return Chunk.in_a_row(features)

    def closing(self, question: str) -> Chunk:
        """What stands after the frames, up to where the response begins."""
        return self.words(self.prompt_ids(question)[1])


@dataclass(frozen=True)
class VideoLlavaArchitecture:
    """A Video-LLaVA known by its config, that of the checkpoint in `folder` where there is one."""

    config: VideoLlavaConfig
    spec: InputSpec
    folder: Path | None = None

    unquantized = ("lm_head", "model.video_tower", "model.multi_modal_projector")

    @property
    def sizes(self) -> Sizes:
        return sizes(self._text, cast(CLIPVisionConfig, self.config.vision_config), 1)

    def tokenizer(self) -> Tokenizer:
        """The folder's; raises InputError as `load_tokenizer`, and where it lacks the token for a video."""
        assert self.folder
        tokenizer = load_tokenizer(self.folder, self._text.vocab_size)
        if tokenizer.token_to_id(VIDEO) is None:
            raise InputError(
                f"the tokenizer in '{self.folder}' lacks '{VIDEO}': take the one that came with the weights"
            )
        return tokenizer

    def skeleton(self) -> VideoLlavaModule:
        """The module without numbers, on torch's meta device."""
        return skeleton(VideoLlavaModule, self.config, folder=self.folder)

    def load(self, placement: Placement) -> VideoLlavaModule:
        """The module with the folder's weights, on the target's device."""
        assert self.folder
        stored = {_module_name(name): tensor for name, tensor in stored_tensors(self.folder).items()}
        return load(
            VideoLlavaModule,
            self.config,
            folder=self.folder,
            stored=stored,
            placement=placement,
            device=placement.device,
            unquantized=self.unquantized,
        )

    def model(self, module: VideoLlavaModule, tokenizer: Tokenizer) -> VideoLlava:
        return VideoLlava(module, tokenizer, self.spec)

    @property
    def _text(self) -> LlamaConfig:
        return cast(LlamaConfig, self.config.text_config)


def architecture(folder: Path) -> VideoLlavaArchitecture:
    """Of the checkpoint in `folder`; raises InputError, also for the original Video-LLaVA."""
    found, values = spec(folder), checked(folder)
    try:
        return VideoLlavaArchitecture(VideoLlavaConfig.from_dict(values), found, folder)
    # transformers' validation raises errors of its own kinds.
    except Exception as error:
        raise no_config(folder / "config.json", error) from error


def released() -> TargetArchitecture:
    """LanguageBind/Video-LLaVA-7B-hf: LLaMA-7B behind CLIP ViT-L/14 at 224 pixels, 8 frames of 257 tokens."""
    config = VideoLlavaConfig(
        text_config=llama_7b(32064),
        vision_config=clip_l(224),
        image_seq_length=256,
        video_seq_length=8 * 257,
    )
    return VideoLlavaArchitecture(config, spec_of(config.to_dict(), (EOS_7B,)))


def _prompt_ids(tokenizer: Tokenizer, question: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    before, after = target_prompt_ids(tokenizer, question)
    return tuple(before), tuple(after)


def _module_name(stored: str) -> str:
    for pattern, replacement in _RENAMED:
        stored = pattern.sub(replacement, stored)
    return stored


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
