"""The two files of a head, or of another small module: `config.json` and `model.safetensors`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from crossspec_ros.errors import InputError
from crossspec_ros.files import replace_file, tensors_file
from crossspec_ros.models.config_files import first_line

WEIGHTS = "model.safetensors"
_LONGEST = 200
_HEAD = "draft head"


def stored(file: Path, what: str = _HEAD) -> dict[str, Tensor]:
    """The tensors in a file of weights; raises InputError where it is missing or damaged."""
    try:
        return load_file(tensors_file(file))
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"the weights '{file}' of a {what} are missing or damaged ({first_line(error)}): copy them again"
        ) from error


def stored_dtype(tensors: dict[str, Tensor]) -> torch.dtype:
    """In which numbers weights are stored."""
    return next((one.dtype for one in tensors.values() if one.is_floating_point()), torch.float32)


def fill(module: nn.Module, file: Path, tensors: dict[str, Tensor] | None = None, what: str = _HEAD) -> None:
    """Take the weights from a file, of which `tensors` may be known; raises InputError where they are missing
    or others."""
    try:
        module.load_state_dict(stored(file, what) if tensors is None else tensors)
    except RuntimeError as error:
        raise InputError(
            f"the weights '{file}' are not those of the {what} that its config.json describes "
            f"({' '.join(str(error).split())[:_LONGEST]}): take both from the same training"
        ) from error


def write(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write both files of a head."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "config.json", (json.dumps(config, indent=1) + "\n").encode())
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    # As bytes, since the library's own files are for their owner alone.
    replace_file(folder / WEIGHTS, save(contiguous, metadata={"format": "pt"}))
