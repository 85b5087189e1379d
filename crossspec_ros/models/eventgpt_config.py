"""Config of EventGPT's vision tower, read without torch.

The file is `clip/config.json` in the checkpoint's folder. If it is missing, `mm_visual_tower` in config.json
must be the tower of the release.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crossspec_ros.errors import InputError
from crossspec_ros.models.config_files import read_json

TOWER_FOLDER = "clip"
_RELEASED_TOWER = "clip-vit-large-patch14-336"
_RELEASED_VALUES = dict(
    hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16,
    image_size=336, patch_size=14,
)  # fmt: skip


def tower_values(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return the tower's config file and its values; raises InputError."""
    file = folder / TOWER_FOLDER / "config.json"
    if not file.is_file():
        name = str(read_json(folder / "config.json").get("mm_visual_tower"))
        if Path(name).name == _RELEASED_TOWER:
            return folder / "config.json", dict(_RELEASED_VALUES)
        raise InputError(
            f"the vision tower '{name}' of '{folder}' has no config.json in '{file.parent}': copy the "
            f"tower's files there"
        )
    values = read_json(file)
    # The config of a complete CLIP has the tower's in a part.
    return file, values.get("vision_config", values)
