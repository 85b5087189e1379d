"""The JSON files of a checkpoint; without torch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from crossspec_ros.errors import InputError, first_line, one_line
from crossspec_ros.files import read_small
from crossspec_ros.models.placement import is_gguf

_MAX_BYTES = 4 << 20
"""A config has some kB, the index of ten thousand tensors 1 MB, as has the largest tokenizer_config.json."""
_PROCESSORS = {
    "video_processor": ("video_preprocessor_config.json", "preprocessor_config.json"),
    "image_processor": ("preprocessor_config.json",),
}
"""Parts of processor_config.json, each with the files that have its settings where that has not."""
_LFS = b"version https://git-lfs.github.com/spec/"
"""Beginning of a Git LFS pointer."""
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
    try:
        # Windows editors put a byte order mark first.
        values = json.loads(read_small(file, _MAX_BYTES).decode("utf-8-sig"))
        if not isinstance(values, dict):
            raise ValueError("no object")
    except (FileNotFoundError, NotADirectoryError) as error:
        check_kind(file.parent)
        if not file.parent.is_dir():
            raise InputError(
                f"there is no folder '{file.parent}': name one that holds a whole checkpoint"
            ) from error
        raise InputError(
            f"the checkpoint '{file.parent}' lacks '{file.name}': name a folder that holds a whole checkpoint"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        check_pointer(file)
        raise InputError(f"'{file}' is no readable JSON ({first_line(error)}): copy it again") from error
    for name in needed:
        if values.get(name) is None:
            raise InputError(f"'{file}' lacks the value '{name}': take the one that came with the weights")
    return values


def check_pointer(file: Path) -> None:
    """Raise InputError where Git LFS left a pointer in place of the file."""
    with suppress(OSError), file.open("rb") as opened:
        if opened.read(len(_LFS)) == _LFS:
            raise InputError(f"'{file}' is a Git LFS pointer and not the file itself: run git lfs pull")


def check_kind(folder: Path) -> None:
    """Raise InputError for a file, an adapter or a GGUF in place of a checkpoint's folder."""
    files = [file for file in folder.glob("*") if is_gguf(file.name) and "mmproj" not in file.name.lower()]
    if files:
        raise InputError(
            f"'{folder}' has no checkpoint of transformers, but a GGUF: name that file itself, "
            f"'{min(files)}', as the target"
        )
    if "gguf" in folder.name.lower():
        raise InputError(
            f"'{folder}' is of llama.cpp's files: download the model's and its projector into a folder, and "
            f"name the model's file; or give the hub id of the safetensors that they were made from"
        )
    if folder.is_file():
        raise InputError(f"'{folder}' is a file: give the folder of the whole checkpoint")
    if (folder / "adapter_config.json").is_file():
        raise InputError(
            f"'{folder}' is an adapter (LoRA) and no whole model: merge it into its base with peft's "
            f"`merge_and_unload`, save that with `save_pretrained`, and give its folder; for models/smol run "
            f"make real, or scripts/make_smol.py"
        )


def read_config(file: Path, needed: Iterable[str]) -> dict[str, Any]:
    """Return the values of a model's config as `read_json`; raises InputError for a quantised checkpoint."""
    values = read_json(file, needed)
    if values.get("quantization_config"):
        raise InputError(
            f"'{file}' is of a quantised checkpoint: take the checkpoint as it was before, and say "
            f"models.dtype instead"
        )
    return values


def open_part(file: Path) -> BinaryIO:
    """Open a file of a checkpoint; raises InputError where it cannot be read."""
    try:
        return file.open("rb")
    except OSError as error:
        raise InputError(
            f"'{file}' cannot be read ({error.strerror}): let its owner give you the right, or copy it again"
        ) from error


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
        raise InputError(f"'{folder / 'config.json'}' lacks the value 'eos_token_id': say it there")
    return ids


def processor_settings(
    folder: Path,
    family: str,
    part: str = "video_processor",
    base: tuple[str, str] = ("", ""),
    **made: object,
) -> tuple[Path, dict[str, Any]]:
    """Return the settings of the checkpoint's processor, which may be empty, and their file.

    As in transformers 5, the `part` of processor_config.json comes before the files of older versions.
    Settings that are not stored are those of the family. A family whose checkpoints differ in them names the
    file that it needs, and a `base` model that has the file.

    Raises InputError for settings of other pixels than those that are `made`, and for a missing file.
    """
    file = folder / "processor_config.json"
    values = read_json(file).get(part) if file.is_file() else None
    if not isinstance(values, dict):
        older = [path for name in _PROCESSORS[part] if (path := folder / name).is_file()]
        file, values = (older[0], read_json(older[0])) if older else (file, {})
    if base[0] and not file.is_file():
        raise InputError(
            f"the checkpoint '{folder}' lacks '{base[0]}', which sets the size of frames: copy it from the "
            f"base model, such as {base[1]}"
        )
    values = {name: value for name in values if (value := _without_none(values[name])) is not None}
    for name, only in {**_ALWAYS, **made}.items():
        only = list(only) if isinstance(only, tuple) else only
        # Resampling has names as well, and all published checkpoints have that of the family.
        if (found := values.get(name, only)) != only and not isinstance(found, str):
            raise InputError(
                f"'{file}' says {name} {found!s:.80}, but frames for {family} are made with "
                f"{only}: take the one that came with the weights"
            )
    return file, values


def no_config(file: Path, family: str, error: Exception) -> InputError:
    """Return the error for values that make no model of the family; the sentence of an InputError stays."""
    if isinstance(error, InputError):
        return InputError(str(error))
    return InputError(
        f"'{file}' is no config of {family} ({one_line(error)[:160]}): take the one that came "
        f"with the weights"
    )


def _without_none(value: object) -> object:
    """Return a setting without the edges that it leaves open; None where nothing is left."""
    if isinstance(value, dict):
        return {name: inner for name, inner in value.items() if inner is not None} or None
    return value
