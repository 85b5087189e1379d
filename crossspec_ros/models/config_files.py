"""The JSON files of a checkpoint, each parsed once as long as it stays the same; without torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from crossspec_ros.errors import InputError, first_line, one_line
from crossspec_ros.files import read_small
from crossspec_ros.models.placement import is_gguf

_REMEMBERED = 32
_MOST_BYTES = 4 << 20
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
    """The object in a JSON file, in which the values `needed` must be; raises InputError that names it."""
    try:
        found = file.stat()
        values = deepcopy(_parsed(file, found.st_size, found.st_mtime_ns))
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
    try:
        with file.open("rb") as opened:
            is_pointer = opened.read(len(_LFS)) == _LFS
    except OSError:
        return
    if is_pointer:
        raise InputError(f"'{file}' is a Git LFS pointer and not the file itself: run git lfs pull")


def check_kind(folder: Path) -> None:
    """Raise InputError where this is a file, or a folder with something else than a checkpoint in it."""
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
    """As `read_json`, of a model's config; a checkpoint that is already quantised is refused."""
    values = read_json(file, needed)
    if values.get("quantization_config"):
        raise InputError(
            f"'{file}' is of a quantised checkpoint: take the checkpoint as it was before, and say "
            f"models.dtype instead"
        )
    return values


def open_part(file: Path) -> BinaryIO:
    """A file of a checkpoint; raises InputError that names it where it cannot be read."""
    try:
        return file.open("rb")
    except OSError as error:
        raise InputError(
            f"'{file}' cannot be read ({error.strerror}): let its owner give you the right, or copy it again"
        ) from error


def generation_values(folder: Path) -> dict[str, Any]:
    """Values of generation_config.json; raises InputError where it cannot be read."""
    file = folder / "generation_config.json"
    values = read_json(file) if file.is_file() else {}
    return {name: value for name, value in values.items() if value is not None}


def eos_ids(folder: Path, by_config: object) -> tuple[int, ...]:
    """The ids that end a sequence of the checkpoint in `folder`, whose config says `by_config`; that of the
    text itself is the first.

    What generation_config.json says goes before. Raises InputError where neither says any.
    """
    said = generation_values(folder).get("eos_token_id", by_config)
    ids = tuple(said) if isinstance(said, list) else (said,)
    if not ids or not all(isinstance(i, int) for i in ids):
        raise InputError(f"'{folder / 'config.json'}' lacks the value 'eos_token_id': say it there")
    return ids


def processor_settings(
    folder: Path | None,
    family: str,
    part: str = "video_processor",
    base: tuple[str, str] = ("", ""),
    **made: object,
) -> tuple[Path, dict[str, Any]]:
    """Settings of the processor of the checkpoint in `folder`, and their file; none where it has none.

    The order is that of transformers 5: the part of processor_config.json, as its `save_pretrained` writes
    it, then a file of the part's own. Settings that nobody says are those of the family.

    A family whose checkpoints differ in these settings names the file that they need and a `base` model that
    has it.

    Raises InputError for settings of other pixels than those that are `made`, and for a missing file.
    """
    file, values = _processor_file(folder, part) if folder else (Path(), {})
    if folder and base[0] and not file.is_file():
        raise InputError(
            f"the checkpoint '{folder}' lacks '{base[0]}', which sets the size of frames: copy it from the "
            f"base model, such as {base[1]}"
        )
    values = {name: _said(value) for name, value in values.items() if _said(value) is not None}
    for name, only in {**_ALWAYS, **made}.items():
        only = list(only) if isinstance(only, tuple) else only
        # Resampling has names as well; a way of its own nobody publishes.
        if (said := values.get(name, only)) != only and not isinstance(said, str):
            raise InputError(
                f"'{file}' says {name} {said!s:.80}, but frames for {family} are made with "
                f"{only}: take the one that came with the weights"
            )
    return file, values


def no_config(file: Path, family: str, error: Exception) -> InputError:
    """Error for values that make no model of the family; a sentence about another file stays."""
    if isinstance(error, InputError):
        return InputError(str(error))
    return InputError(
        f"'{file}' is no config of {family} ({one_line(error)[:160]}): take the one that came "
        f"with the weights"
    )


@contextmanager
def config_errors(file: Path, family: str) -> Iterator[None]:
    """Raise InputError as `no_config` for what goes wrong inside with values of this file."""
    try:
        yield
    except (TypeError, ValueError, ArithmeticError) as error:
        raise no_config(file, family, error) from error


def _processor_file(folder: Path, part: str) -> tuple[Path, dict[str, Any]]:
    nested = folder / "processor_config.json"
    inner = read_json(nested).get(part) if nested.is_file() else None
    if isinstance(inner, dict):
        return nested, inner
    files = [file for name in _PROCESSORS[part] if (file := folder / name).is_file()]
    return (files[0], read_json(files[0])) if files else (nested, {})


def _said(value: object) -> object:
    """A setting without the edges that it leaves open; None where nothing is left."""
    if isinstance(value, dict):
        return {name: inner for name, inner in value.items() if inner is not None} or None
    return value


@lru_cache(_REMEMBERED)
def _parsed(file: Path, size: int, mtime_ns: int) -> dict[str, Any]:
    # Windows editors put a byte order mark first.
    values = json.loads(read_small(file, _MOST_BYTES).decode("utf-8-sig"))
    if not isinstance(values, dict):
        raise ValueError("no object")
    return values
