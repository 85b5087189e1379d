"""Both models at given dimensions with random weights: they take the time of the real ones, and say nothing.

What is fast or slow depends on shapes and numbers' sizes, not on what a model was taught.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import nn
from transformers import CLIPVisionConfig, LlamaConfig, PreTrainedModel, VideoLlavaConfig

from crossspec_ros.models.checkpoint import skeleton
from crossspec_ros.models.dimensions import eventgpt_7b, video_llava_7b
from crossspec_ros.models.eventgpt import EventGPT
from crossspec_ros.models.loading import ModelPair
from crossspec_ros.models.placement import UNQUANTIZED, Placement
from crossspec_ros.models.video_llava import VideoTarget

_SPREAD = 0.02
"""Standard deviation of quantised weights; transformers draws all others."""


@dataclass(frozen=True)
class Dimensions:
    """The configs of the target, of the draft, and of the draft's tower."""

    name: str
    target: VideoLlavaConfig
    draft: LlamaConfig
    vision: CLIPVisionConfig


def seven_b() -> Dimensions:
    """Dimensions of the released models."""
    return Dimensions("7B", video_llava_7b(), *eventgpt_7b())


def dimensions_of(pair: ModelPair, name: str) -> Dimensions:
    """Dimensions of loaded models."""
    return Dimensions(name, pair.target.config, pair.draft.config, pair.draft.vision_config)


def random_pair(like: ModelPair, dimensions: Dimensions, placement: Placement) -> ModelPair:
    """Models of these dimensions where and in which numbers `placement` says.

    Tokenizers, the end of sequence and the images of a window are those of `like`, whose token ids must be
    valid in the larger vocabularies.
    """
    target = _filled(skeleton(VideoTarget, dimensions.target), placement, placement.device)
    draft = _filled(skeleton(EventGPT, dimensions.draft, dimensions.vision), placement, placement.draft_on)
    return replace(like, target=target, draft=draft)


@torch.no_grad()
def _filled(model: PreTrainedModel, placement: Placement, device: str) -> PreTrainedModel:
    """The skeleton with numbers, made where they will be; a quantised layer's others are gone at once."""
    if config := placement.quantization():
        from transformers.integrations.bitsandbytes import replace_with_bnb_linear

        # As `from_pretrained` does it, so that the modules are those of a loaded checkpoint.
        replace_with_bnb_linear(model, list(UNQUANTIZED), config)
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            values = torch.empty(parameter.shape, dtype=placement.torch_dtype, device=device)
            if type(parameter) is nn.Parameter:
                filled = nn.Parameter(values, requires_grad=False)
            else:
                values.normal_(std=_SPREAD)
                # To int8 bitsandbytes quantises what comes from the host.
                values = values.cpu() if placement.dtype == "int8" else values
                filled = type(parameter)(values, requires_grad=False, **vars(parameter)).to(device)
                module._is_hf_initialized = True
            setattr(module, name, filled)
        for name, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, name, torch.empty_like(buffer, device=device))
    model.initialize_weights()
    return model.eval()
