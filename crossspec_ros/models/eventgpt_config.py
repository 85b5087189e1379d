"""Configs of an EventGPT and of its vision tower, read without torch.

The tower may be inside the checkpoint or beside it: `mm_visual_tower` of config.json is the path or the hub
id of a CLIP, which is looked for as `clip/` in the folder, and by its last name there and next to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crossspec_ros.errors import InputError
from crossspec_ros.files import is_file
from crossspec_ros.models.config_files import no_config, read_config, read_json

NAME = "EventGPT"
_NEEDED = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_LLAMA_KEYS = (
    *_NEEDED, "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "hidden_act",
    "rope_parameters", "rope_theta", "rope_scaling", "attention_bias", "mlp_bias", "tie_word_embeddings",
    "bos_token_id", "eos_token_id", "pad_token_id",
)  # fmt: skip
_CLIP_NEEDED = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "image_size",
    "patch_size",
)  # fmt: skip
_CLIP_KEYS = (*_CLIP_NEEDED, "num_channels", "hidden_act", "layer_norm_eps")
_CLIP = {"image_size": 224, "patch_size": 32}
"""Values that transformers takes for those left out."""
_KNOWN_TOWERS: dict[str, dict[str, Any]] = {
    "clip-vit-large-patch14-336": dict(
        hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16,
        image_size=336, patch_size=14,
    )
}  # fmt: skip


def image_size(folder: Path) -> int:
    """The shortest edge in pixels of the images that the model in `folder` looks at; raises InputError."""
    return tower_values(folder)[1]["image_size"]


def llama_values(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The file of the language model's config, and those of its values that describe the model's shape,
    never what says where code is; raises InputError."""
    file = folder / "config.json"
    return file, _known(read_config(file, _NEEDED), _LLAMA_KEYS)


def tower_values(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The same of the vision tower."""
    tower = tower_folder(folder)
    if tower is None:
        return folder / "config.json", _KNOWN_TOWERS[tower_name(folder)]
    file = tower / "config.json"
    values = read_json(file)
    # A whole CLIP has a text tower as well; in the part for each, what is left out is transformers' default.
    inner = values.get("vision_config")
    said = _known(inner if isinstance(inner, dict) else read_json(file, _CLIP_NEEDED), _CLIP_KEYS)
    values = _CLIP | said
    for name in _CLIP:
        if not isinstance(values[name], int):
            raise no_config(file, NAME, TypeError(f"{name} {values[name]}"))
    return file, values


def folders(folder: Path) -> list[Path]:
    """Folders of the checkpoint's files: its own, and that of the tower where it is elsewhere."""
    tower = tower_folder(folder)
    # A link in the folder is not followed by those who look through it.
    if tower is None or tower.resolve().is_relative_to(folder.resolve()):
        return [folder]
    return [folder, tower]


def tower_folder(folder: Path) -> Path | None:
    """Folder of the tower's config; None where it is known by its name."""
    named = read_json(folder / "config.json").get("mm_visual_tower")
    name = tower_name(folder)
    places = [folder / "clip", folder / name, folder.resolve().parent / name]
    if isinstance(named, str) and Path(named).is_absolute():
        places.append(Path(named))
    for place in places:
        if is_file(place / "config.json"):
            return place
    if name in _KNOWN_TOWERS:
        return None
    looked = ", ".join(f"'{place}'" for place in places)
    raise InputError(
        f"the vision tower '{named}' of '{folder}' has no config.json in {looked}: put the tower's folder at "
        f"the first of them"
    )


def tower_name(folder: Path) -> str:
    """The last name of the tower."""
    named = read_json(folder / "config.json").get("mm_visual_tower")
    return Path(named).name if isinstance(named, str) and named else "clip"


def _known(values: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: values[key] for key in keys if key in values}
