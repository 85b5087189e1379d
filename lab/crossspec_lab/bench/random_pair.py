"""Pairs with random weights, such as Video-LLaVA-7B and EventGPT-7B, which take the time of the real ones.

Times depend on shapes and dtypes, not on the values of weights.
"""

from __future__ import annotations

import json
import tempfile
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer
from torch import nn

from crossspec_ros.models.eventgpt import EventGPTArchitecture
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import TargetArchitecture, draft_architecture, target_architecture
from crossspec_ros.paths import tiny_models

_SPREAD = 0.02
"""Standard deviation of quantised weights; transformers draws all others."""
_LLAMA_7B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_CLIP_L = {
    "model_type": "clip_vision_model",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 224,
    "patch_size": 14,
    "projection_dim": 768,
}
_CONFIGS = {
    "target": {
        "model_type": "video_llava",
        "text_config": _LLAMA_7B | {"vocab_size": 32064},
        "vision_config": _CLIP_L,
        "image_seq_length": 256,
        "video_seq_length": 2056,
    },
    "draft": _LLAMA_7B
    | {
        "model_type": "EventChat_llama",
        "vocab_size": 32003,
        "mm_visual_tower": "openai/clip-vit-large-patch14-336",
    },
}


class Dimensions(NamedTuple):
    """Architectures of both models, from their configs alone."""

    name: str
    target: TargetArchitecture
    draft: EventGPTArchitecture
    tokenizer: Tokenizer | None = None
    """The target's own."""


def released_pair() -> tuple[TargetArchitecture, EventGPTArchitecture]:
    """Return both architectures; they have no weights and no tokenizers."""
    with tempfile.TemporaryDirectory() as name:
        for model, values in _CONFIGS.items():
            folder = Path(name) / model
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(values))
        return target_architecture(Path(name) / "target"), draft_architecture(Path(name) / "draft")


def tiny() -> Dimensions:
    """Return dimensions of the shipped pair."""
    folder = tiny_models()
    return Dimensions("tiny", target_architecture(folder / "target"), draft_architecture(folder / "draft"))


def dimensions_of(is_tiny: bool, target: str = "") -> Dimensions:
    """Return the dimensions of the shipped pair or the 7B models, with the target of a folder if named."""
    found = tiny() if is_tiny else Dimensions("7B", *released_pair())
    if not target:
        return found
    other = target_architecture(Path(target))
    return found._replace(name=Path(target).name, target=other, tokenizer=other.tokenizer())


def random_pair(like: ModelPair, dimensions: Dimensions, placement: Placement) -> ModelPair:
    """Return models of these dimensions on the devices and in the dtype of `placement`.

    Tokenizers come from `like`, unless the target has its own. Their token ids must be valid in the larger
    vocabularies.
    """
    assert like.draft is not None
    target: Any = dimensions.target
    draft = dimensions.draft
    return replace(
        like,
        target=target.model(
            _filled(target, placement, placement.device), dimensions.tokenizer or like.target.tokenizer
        ),
        draft=draft.model(_filled(draft, placement, placement.draft_on), like.draft.tokenizer),
    )


@torch.no_grad()
def _filled(architecture: Any, placement: Placement, device: str) -> Any:
    """Return the module with random weights, made and quantised layer by layer on the device."""
    model = deepcopy(architecture.skeleton)
    if config := placement.quantization(architecture.unquantized):
        from transformers.integrations.bitsandbytes import replace_with_bnb_linear

        # As `from_pretrained` does it, so that the modules are those of a loaded checkpoint.
        replace_with_bnb_linear(model, list(architecture.unquantized), config)
    made: dict[nn.Parameter, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            # A head that is tied to the embeddings stays so.
            if parameter in made:
                setattr(module, name, made[parameter])
                continue
            values = torch.empty(parameter.shape, dtype=placement.torch_dtype, device=device)
            if type(parameter) is nn.Parameter:
                filled = nn.Parameter(values, requires_grad=False)
            else:
                values.normal_(std=_SPREAD)
                # To int8 bitsandbytes quantises what comes from the host.
                values = values.cpu() if placement.dtype == "int8" else values
                filled = type(parameter)(values, requires_grad=False, **vars(parameter)).to(device)
                module._is_hf_initialized = True
            made[parameter] = filled
            setattr(module, name, filled)
        for name, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, name, torch.empty_like(buffer, device=device))
    model.initialize_weights()
    return model.eval()
