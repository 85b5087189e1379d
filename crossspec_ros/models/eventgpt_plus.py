"""EventGPT-Plus (Liu et al. 2025, "EventBench"): a SigLIP or CLIP tower for event images, and a Qwen2.

Parameters have the names of the published code (XduSyL/EventBench). That code drops the first output of any
tower, which in CLIP is the class token. SigLIP has no class token, so the code fails there. Here all patches
of a SigLIP tower are used.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    CLIPVisionConfig,
    CLIPVisionModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    SiglipVisionConfig,
    SiglipVisionModel,
)

from crossspec_ros.errors import InputError
from crossspec_ros.models.base import DRAFT_IMAGES
from crossspec_ros.models.eventgpt import EventGPT, EventGPTArchitecture, projector
from crossspec_ros.models.preprocess import square_pixels

_MODEL_TYPE = "eventgpt_plus_qwen"
_TOWERS = {"SigLIP": SiglipVisionConfig, "CLIP": CLIPVisionConfig}
"""Configs of towers by `event_tower_type`, the published code's default first."""
_SYSTEM = (
    "You are a helpful assistant. You are looking at a red-blue visualization of the Event Stream. Please "
    "answer the question based solely on the visual input. Do not make assumptions or guess beyond what is "
    "observable."
)


class EventGPTPlusModule(Qwen2ForCausalLM):
    """Qwen2 with event tokens from a tower, a 2-layer GELU MLP and average pooling."""

    # The published code ignores other modules, such as those of a complete CLIP or SigLIP.
    _keys_to_ignore_on_load_unexpected = [  # noqa: RUF012
        r"^model\.(?!(embed_tokens|layers|norm|event_tower|event_projector)\.)",
        r"vision_tower\.(text_|visual_projection|logit_)",
    ]

    def __init__(self, config: Qwen2Config) -> None:
        """Create the modules; `config.vision_config` is the tower's config."""
        super().__init__(config)
        vision = config.vision_config
        kind = SiglipVisionModel if isinstance(vision, SiglipVisionConfig) else CLIPVisionModel
        self.model.event_tower = nn.Module()
        self.model.event_tower.vision_tower = kind(vision)
        self.model.event_projector = projector(vision.hidden_size, config.hidden_size)

    def encode_events(self, pixels: Tensor) -> Tensor:
        """Return the event tokens of a window.

        Args:
            pixels: (k, 3, S, S) preprocessed event images in order of time.

        Returns:
            (k * tokens, hidden): for each image the mean of each square of 2 by 2 patches, row by row.
        """
        vision = self.config.vision_config
        side = vision.image_size // vision.patch_size
        patches = self.model.event_tower.vision_tower(pixels).last_hidden_state[:, -side * side :]
        tokens = self.model.event_projector(patches).transpose(1, 2).unflatten(2, (side, side))
        return functional.avg_pool2d(tokens, 2).flatten(2).transpose(1, 2).flatten(0, 1)


class EventGPTPlus(EventGPT):
    """`EventModel` of EventGPT-Plus."""

    # Eight images need 1,352 with a tower of 27 by 27 patches.
    room = 2048
    event_images = DRAFT_IMAGES[_MODEL_TYPE].images

    def pixels(self, images: np.ndarray) -> Tensor:
        if isinstance(self.module.config.vision_config, SiglipVisionConfig):
            return square_pixels(images, self.image_size)
        return super().pixels(images)

    def prompt_ids(self, question: str) -> tuple[list[int], list[int]]:
        before = f"<|im_start|>system\n{_SYSTEM}\n<|im_end|>\n<|im_start|>user\n"
        after = f"\n{question}<|im_end|>\n<|im_start|>assistant\n"
        return self.tokenizer.encode(before).ids, self.tokenizer.encode(after).ids


class EventGPTPlusArchitecture(EventGPTArchitecture):
    """An EventGPT-Plus checkpoint, described by its configs."""

    unquantized = ("lm_head", "model.event_tower", "model.event_projector")
    model_type = _MODEL_TYPE
    name = "EventGPT-Plus"
    model_class = EventGPTPlus
    text_config = Qwen2Config
    tower = "model.event_tower.vision_tower."
    flags = ("mm_use_ev_patch_token", "mm_use_ev_start_end")

    @classmethod
    def vision_config(cls, file: Path, values: dict[str, Any]) -> type[Any]:
        kinds = {"event_tower_type": tuple(_TOWERS), "event_projector_type": ("mlp",)}
        found = {name: values.get(name, supported[0]) for name, supported in kinds.items()}
        for name, kind in found.items():
            if kind not in kinds[name]:
                raise InputError(
                    f"'{file}' sets {name} to {kind!s:.80}, but {cls.name} supports only "
                    f"{' and '.join(kinds[name])}: use another checkpoint"
                )
        return _TOWERS[found["event_tower_type"]]

    @classmethod
    def module_class(cls) -> Any:
        return EventGPTPlusModule
