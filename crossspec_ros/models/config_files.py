"""The JSON files of a checkpoint; without torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from crossspec_ros.errors import InputError, first_line, one_line
from crossspec_ros.files import check_file, read_small
from crossspec_ros.models.placement import GGUF, is_gguf

_MAX_BYTES = 4 << 20
"""A config has some kB, the index of ten thousand tensors 1 MB, as has the largest tokenizer_config.json."""
_PROCESSORS = {
    "video_processor": ("video_preprocessor_config.json", "preprocessor_config.json"),
    "image_processor": ("preprocessor_config.json",),
}
"""Parts of processor_config.json, each with the older files that have its settings."""
_ALWAYS = {"do_resize": True, "do_rescale": True, "do_normalize": True, "rescale_factor": 1 / 255}
HALF = (0.5, 0.5, 0.5)
"""Mean and deviation of most image processors."""
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
LANCZOS = 1
BICUBIC = 3
"""Numbers in PIL of ways to resample."""


def read_json(file: Path, needed: Iterable[str] = ()) -> dict[str, Any]:
    """Return the object in a JSON file, which must have the `needed` values; raises InputError."""
    if not file.exists():
        check_kind(file.parent)
        if not file.parent.is_dir():
            raise InputError(
                f"there is no folder '{file.parent}': name a folder that holds a complete checkpoint"
            )
        raise InputError(f"there is no '{file.name}' in '{file.parent}': {_remedy(file)}")
    try:
        check_file(file)
        # Windows editors put a byte order mark first.
        values = json.loads(read_small(file, _MAX_BYTES).decode("utf-8-sig"))
        if not isinstance(values, dict):
            raise ValueError("no object")
    except InputError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"'{file}' is no readable JSON ({first_line(error)}): copy it again") from error
    _check_values(values, file, needed)
    return values


def _remedy(file: Path) -> str:
    """Return what to do about a file that a checkpoint lacks."""
    config = file.parent / "config.json"
    if file == config or not config.is_file():
        return "name a folder that holds a complete checkpoint"
    base = read_json(config).get("_name_or_path")
    # transformers 5 does not store the base model any more.
    named = f" {base:.200}" if isinstance(base, str) and base else ""
    return f"copy it from the base model{named} of this fine-tune, which has it"


def check_kind(folder: Path) -> None:
    """Raise InputError for an adapter or a GGUF in place of a checkpoint's folder."""
    if GGUF in folder.name.lower() or any(is_gguf(file.name) for file in folder.glob("*")):
        raise InputError(
            f"'{folder}' holds files of llama.cpp: give the path of the model's own GGUF, with its projector "
            f"in the same folder, or the hub id of the safetensors that they were made from"
        )
    if (folder / "adapter_config.json").is_file():
        raise InputError(
            f"'{folder}' is an adapter (LoRA): merge it into its base with peft's `merge_and_unload`, and "
            f"give the folder that `save_pretrained` writes; for models/smol run make real"
        )


def read_config(file: Path, needed: Iterable[str]) -> dict[str, Any]:
    """Return the values of a model's config as `read_json`; raises InputError for a quantised checkpoint."""
    values = read_json(file, needed)
    if values.get("quantization_config"):
        raise InputError(
            f"'{file}' is of a quantised checkpoint: take the checkpoint as it was before, and set "
            f"models.dtype"
        )
    return values


def generation_values(folder: Path) -> dict[str, Any]:
    """Return the values of generation_config.json, if any; raises InputError."""
    file = folder / "generation_config.json"
    values = read_json(file) if file.is_file() else {}
    return {name: value for name, value in values.items() if value is not None}


def eos_ids(folder: Path, by_config: object) -> tuple[int, ...]:
    """Return the ids that end a sequence, the text's own first.

    generation_config.json takes precedence over the id in config.json, `by_config`. Raises InputError where
    neither has one.
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

    As in transformers 5, the `part` of processor_config.json comes before the files of older versions. Other
    settings than the `needed` ones may be missing, and are those of the family.

    Raises InputError where a needed setting is missing, and for settings of other pixels than `made`.
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
            # transformers 5 stores all edges.
            found = {edge: size for edge, size in found.items() if size is not None}
        # Resampling has names as well, and all published checkpoints have that of the family.
        if found is not None and found != only and not isinstance(found, str):
            raise InputError(
                f"'{file}' sets {name} to {found!s:.80}, but frames for {family} are made with {only}: take "
                f"the one that came with the weights"
            )
    return values


def no_config(file: Path, family: str, error: Exception) -> InputError:
    """Return the error for values that make no model of the family; the sentence of an InputError stays."""
    if isinstance(error, InputError):
        return InputError(str(error))
    return InputError(
        f"'{file}' is no config of {family} ({one_line(error)[:160]}): take the one that came "
        f"with the weights"
    )


def _check_values(values: Mapping[str, Any], file: Path, needed: Iterable[str]) -> None:
    for name in needed:
        if values.get(name) is None:
            raise InputError(f"'{file}' lacks the value '{name}': take the one that came with the weights")
