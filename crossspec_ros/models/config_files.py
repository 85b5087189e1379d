"""JSON files of a checkpoint, read without torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from crossspec_ros.errors import InputError, first_line, one_line
from crossspec_ros.files import check_file, read_small
from crossspec_ros.models.placement import GGUF, is_gguf

_MAX_BYTES = 4 << 20
"""Largest file. An index of ten thousand tensors and the largest tokenizer_config.json have 1 MB."""
_PROCESSORS = {
    "video_processor": ("video_preprocessor_config.json", "preprocessor_config.json"),
    "image_processor": ("preprocessor_config.json",),
}
"""Parts of processor_config.json, each with the older files for its settings."""
_ALWAYS = {"do_resize": True, "do_rescale": True, "do_normalize": True, "rescale_factor": 1 / 255}
HALF = (0.5, 0.5, 0.5)
"""Mean and standard deviation of most image processors."""
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
LANCZOS = 1
BICUBIC = 3
"""PIL's numbers of resampling filters."""

_TOWER_FOLDER = "clip"
"""Folder of EventGPT's vision tower in its checkpoint."""
_RELEASED_TOWER = "clip-vit-large-patch14-336"
_RELEASED_VALUES = dict(
    hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16,
    image_size=336, patch_size=14,
)  # fmt: skip


def read_json(file: Path, needed: Iterable[str] = ()) -> dict[str, Any]:
    """Return the object in a JSON file; raises InputError, also if it lacks a `needed` value."""
    if not file.exists():
        check_kind(file.parent)
        if not file.parent.is_dir():
            raise InputError(f"there is no folder '{file.parent}': use the folder of a complete checkpoint")
        raise InputError(f"there is no '{file.name}' in '{file.parent}': {_remedy(file)}")
    try:
        check_file(file)
        # Editors on Windows write a byte order mark first.
        values = json.loads(read_small(file, _MAX_BYTES).decode("utf-8-sig"))
        if not isinstance(values, dict):
            raise ValueError("it is not an object")
    except InputError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"'{file}' is not readable JSON ({first_line(error)}): copy it again") from error
    _check_values(values, file, needed)
    return values


def _remedy(file: Path) -> str:
    """Return the remedy for a missing file of a checkpoint."""
    config = file.parent / "config.json"
    if file == config or not config.is_file():
        return "use the folder of a complete checkpoint"
    base = read_json(config).get("_name_or_path")
    # transformers 5 no longer stores the base model.
    named = f" {base:.200}" if isinstance(base, str) and base else ""
    return f"copy it from the base model{named} of this fine-tune"


def check_kind(folder: Path) -> None:
    """Raise InputError for an adapter or a GGUF in place of a checkpoint's folder."""
    if GGUF in folder.name.lower() or any(is_gguf(file.name) for file in folder.glob("*")):
        raise InputError(
            f"'{folder}' has files of llama.cpp: use the path of the model's GGUF, with its projector in the "
            f"same folder, or the hub id of the original safetensors"
        )
    if (folder / "adapter_config.json").is_file():
        raise InputError(
            f"'{folder}' is an adapter (LoRA): merge it into its base with peft's `merge_and_unload`, and "
            f"use the folder that `save_pretrained` writes; for models/smol run make real"
        )


def read_config(file: Path, needed: Iterable[str]) -> dict[str, Any]:
    """Return a model's config as `read_json` does; raises InputError for a quantised checkpoint."""
    values = read_json(file, needed)
    if values.get("quantization_config"):
        raise InputError(
            f"'{file}' is of a quantised checkpoint: use the original checkpoint, and set models.dtype"
        )
    return values


def generation_values(folder: Path) -> dict[str, Any]:
    """Return the values of generation_config.json, if any; raises InputError."""
    file = folder / "generation_config.json"
    values = read_json(file) if file.is_file() else {}
    return {name: value for name, value in values.items() if value is not None}


def eos_ids(folder: Path, by_config: object) -> tuple[int, ...]:
    """Return the ids that end a sequence, the language model's own first.

    generation_config.json takes precedence over the id in config.json, `by_config`. Raises InputError if
    both lack an id.
    """
    found = generation_values(folder).get("eos_token_id", by_config)
    ids = tuple(found) if isinstance(found, list) else (found,)
    if not ids or not all(isinstance(i, int) for i in ids):
        raise InputError(f"'{folder / 'config.json'}' lacks the value 'eos_token_id': set it there")
    return ids


def processor_settings(
    folder: Path, family: str, part: str = "video_processor", needed: Iterable[str] = (), **made: object
) -> dict[str, Any]:
    """Return the settings of the checkpoint's processor.

    As in transformers 5, the `part` of processor_config.json takes precedence over older files. Settings that
    are not `needed` default to those of the family.

    Raises InputError if a needed setting is missing, or if a setting differs from the family's in `made`.
    """
    file = folder / "processor_config.json"
    values = read_json(file).get(part) if file.is_file() else None
    if not isinstance(values, dict):
        older = [folder / name for name in _PROCESSORS[part]]
        file = next(filter(Path.is_file, older), older[0])
        values = read_json(file) if needed or file.is_file() else {}
    _check_values(values, file, needed)
    for name, only in {**_ALWAYS, **made}.items():
        only, found = list(only) if isinstance(only, tuple) else only, values.get(name)
        if isinstance(found, dict):
            # transformers 5 also stores unset edges.
            found = {edge: size for edge, size in found.items() if size is not None}
        # A resampling filter may be a name; all published checkpoints have the filter of the family.
        if found is not None and found != only and not isinstance(found, str):
            raise InputError(
                f"'{file}' sets {name} to {found!s:.80}, but frames for {family} need {only}: copy the file "
                f"from the original checkpoint"
            )
    return values


def tower_folder(folder: Path) -> Path:
    """Return the folder of an event model's vision tower, by `event_tower` in config.json."""
    named = Path(str(read_json(folder / "config.json").get("event_tower") or _TOWER_FOLDER))
    # An absolute path is one of the machine that trained EventGPT-Plus.
    return folder / (named.name if named.is_absolute() else named)


def tower_values(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return the config file of an event model's vision tower and its values; raises InputError.

    Without that file, `mm_visual_tower` in config.json must be the tower of EventGPT's release.
    """
    file = tower_folder(folder) / "config.json"
    if not file.is_file():
        values = read_json(folder / "config.json")
        name = str(values.get("event_tower") or values.get("mm_visual_tower"))
        if Path(name).name == _RELEASED_TOWER:
            return folder / "config.json", dict(_RELEASED_VALUES)
        raise InputError(
            f"the vision tower '{name}' of '{folder}' has no config.json in '{file.parent}': copy the "
            f"tower's files there"
        )
    values = read_json(file)
    # The config of a complete CLIP has the tower's in a part.
    return file, values.get("vision_config", values)


def config_error(file: Path, family: str, error: Exception) -> InputError:
    """Return the error for an invalid config of the family; an InputError keeps its sentence."""
    if isinstance(error, InputError):
        return InputError(str(error))
    return InputError(
        f"'{file}' is not a config of {family} ({one_line(error)[:160]}): copy the file from the original "
        f"checkpoint"
    )


def _check_values(values: Mapping[str, Any], file: Path, needed: Iterable[str]) -> None:
    for name in needed:
        if values.get(name) is None:
            raise InputError(f"'{file}' lacks the value '{name}': copy the file from the original checkpoint")
