"""Configs of an EventGPT and of its vision tower, read without torch.

The tower's config is `clip/config.json` in the checkpoint's folder. Where there is none, `mm_visual_tower` of
config.json must name the tower of the release.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crossspec_ros.errors import InputError
from crossspec_ros.models.config_files import read_config, read_json

NAME = "EventGPT"
TOWER_FOLDER = "clip"
_NEEDED = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_LLAMA_KEYS = (
    *_NEEDED, "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "hidden_act",
    "rope_parameters", "rope_theta", "rope_scaling", "attention_bias", "mlp_bias", "tie_word_embeddings",
    "bos_token_id", "eos_token_id", "pad_token_id",
)  # fmt: skip
_CLIP_KEYS = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_channels",
    "hidden_act", "layer_norm_eps", "image_size", "patch_size",
)  # fmt: skip
_RELEASED_TOWER = "clip-vit-large-patch14-336"
_RELEASED_VALUES = dict(
    hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16,
    image_size=336, patch_size=14,
)  # fmt: skip


def image_size(folder: Path) -> int:
    """Return the shortest edge in pixels of the images for the model in `folder`; raises InputError."""
    # The default is that of transformers.
    return int(tower_values(folder)[1].get("image_size", 224))


def llama_values(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return the language model's config file, and its values that describe the model's shape.

    Raises InputError.
    """
    file = folder / "config.json"
    values = read_config(file, _NEEDED)
    # Other values may name code.
    return file, {key: values[key] for key in _LLAMA_KEYS if key in values}


def tower_values(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return the same of the vision tower."""
    file = folder / TOWER_FOLDER / "config.json"
    if not file.is_file():
        name = str(read_json(folder / "config.json").get("mm_visual_tower"))
        if Path(name).name == _RELEASED_TOWER:
            return folder / "config.json", dict(_RELEASED_VALUES)
        raise InputError(
            f"the vision tower '{name}' of '{folder}' has no config.json in '{file.parent}': put the tower's "
            f"folder there"
        )
    values = read_json(file)
    # A complete CLIP has a text tower as well.
    values = values.get("vision_config", values)
    return file, {key: values[key] for key in _CLIP_KEYS if key in values}
