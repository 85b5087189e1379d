"""EventGPT (Liu et al., CVPR 2025): a CLIP tower looks at event images, a LLaMA speaks.

The module's parameter names are those of the released checkpoint (XduSyL/EventGPT), except that the CLIP
tower's `vision_model.` level is gone from transformers 5; `module_name` bridges that.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import CLIPVisionConfig, CLIPVisionModel, LlamaConfig, LlamaForCausalLM

from crossspec_ros.models.transfer import to_device

EVENT_TOKEN_ID = -200
"""Stands in `input_ids` where the event tokens go."""

TOWER = "model.visual_tower.visual_tower."
"""What the names of the vision tower's tensors begin with."""


class _Tower(nn.Module):
    def __init__(self, config: CLIPVisionConfig) -> None:
        super().__init__()
        self.visual_tower = CLIPVisionModel(config)


class EventGPT(LlamaForCausalLM):
    """LLaMA with event tokens: tower -> 2-layer GELU MLP -> linear adaptor per image -> spatio-temporal
    pooling."""

    def __init__(self, config: LlamaConfig, vision_config: CLIPVisionConfig) -> None:
        super().__init__(config)
        width = config.hidden_size
        self.model.visual_tower = _Tower(vision_config)
        self.model.visual_projector = nn.Sequential(
            nn.Linear(vision_config.hidden_size, width), nn.GELU(), nn.Linear(width, width)
        )
        self.model.feature_adaptor = nn.Linear(width, width)
        self.vision_config = vision_config

    def encode_events(self, pixels: Tensor) -> Tensor:
        """Event tokens of one window.

        Args:
            pixels: (k, 3, S, S) preprocessed event images in order of time, or (batch, k, 3, S, S).

        Returns:
            (k + patches + 1, hidden): k means over space, one an image, then the means over time of every
            position of the tower's output, its class token included; with a leading batch axis if `pixels`
            had one.
        """
        k = pixels.shape[-4]
        features = self.model.visual_tower.visual_tower(pixels.flatten(0, -4)).last_hidden_state
        tokens = self.model.feature_adaptor(self.model.visual_projector(features))
        tokens = tokens.view(*pixels.shape[:-4], k, *tokens.shape[1:])
        return torch.cat([tokens.mean(-2), tokens.mean(-3)], dim=-2)

    def embed_prompt(self, input_ids: Tensor, event_tokens: Tensor) -> Tensor:
        """(length,) ids on the host with one `EVENT_TOKEN_ID` and (tokens, hidden) event tokens -> (1,
        expanded, hidden)."""
        at = int((input_ids == EVENT_TOKEN_ID).nonzero().item())
        embed = self.model.embed_tokens
        input_ids = to_device(input_ids, event_tokens.device)
        return torch.cat([embed(input_ids[:at]), event_tokens, embed(input_ids[at + 1 :])])[None]


def module_name(released: str) -> str:
    """The name in `EventGPT` of a tensor of the released checkpoint."""
    return released.replace(TOWER + "vision_model.", TOWER)


def released_state(model: EventGPT) -> dict[str, Tensor]:
    """The model's tensors under the names of the released checkpoint."""
    return {
        key.replace(TOWER, TOWER + "vision_model."): value.contiguous()
        for key, value in model.state_dict().items()
    }
