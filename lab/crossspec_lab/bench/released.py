"""The released 7B pair by its configs: Video-LLaVA-7B and EventGPT-7B, for estimates and random weights."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from crossspec_ros.models.eventgpt import EventGPTArchitecture
from crossspec_ros.models.registry import TargetArchitecture, draft_architecture, target_architecture

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


def released_pair() -> tuple[TargetArchitecture, EventGPTArchitecture]:
    """Return both architectures; they have no weights and no tokenizers."""
    with tempfile.TemporaryDirectory() as name:
        for model, values in _CONFIGS.items():
            folder = Path(name) / model
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(values))
        return target_architecture(Path(name) / "target"), draft_architecture(Path(name) / "draft")
