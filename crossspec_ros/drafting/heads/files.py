"""A head's folder: `config.json` with what it is, and `model.safetensors` with its weights."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from crossspec_ros.drafting.heads.head import Head, Sizes
from crossspec_ros.errors import InputError
from crossspec_ros.models.base import VideoTarget
from crossspec_ros.models.config_files import first_line, read_json

KINDS = ("adapter",)
"""Files in this folder that hold a head."""
WEIGHTS = "model.safetensors"
_VERSION = 1


def make_head(kind: str, sizes: Sizes, options: dict[str, Any]) -> Head:
    """An untrained head; raises InputError for a kind or options that there are not."""
    if kind not in KINDS:
        raise InputError(f"there is no head of the kind {kind!r}: it must be one of {', '.join(KINDS)}")
    module = import_module(f"{__package__}.{kind}")
    found: type[Head] = next(
        one
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, Head) and one.__module__ == module.__name__
    )
    try:
        return found(sizes, **options)
    except (TypeError, ValueError, ArithmeticError, AssertionError, RuntimeError) as error:
        raise InputError(
            f"a head of the kind {kind} cannot have the options {options} ({first_line(error)}): take the "
            f"config.json that came with the weights"
        ) from error


def save_head(head: Head, folder: Path, notes: dict[str, Any]) -> None:
    """Write it, with `notes` about its training; in bfloat16, as checkpoints are."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "crossspec_head": _VERSION,
        "kind": head.kind,
        "sizes": asdict(head.sizes),
        "options": head.options,
        "training": notes,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    tensors = {
        name: tensor.to(torch.bfloat16 if tensor.is_floating_point() else tensor.dtype).contiguous()
        for name, tensor in head.state_dict().items()
    }
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def load_head(folder: Path, target: VideoTarget) -> Head:
    """The head in `folder`, on the target's device.

    Raises InputError that names the file which is missing, damaged, or of another target.
    """
    file = folder / "config.json"
    if not file.is_file():
        raise InputError(f"'{folder}' holds no draft head, for it has no config.json: name one's folder")
    values = read_json(file, ["kind", "sizes", "options"])
    try:
        sizes = Sizes(**values["sizes"])
    except TypeError as error:
        raise InputError(
            f"'{file}' describes no draft head ({error}): take the one that came with the weights"
        ) from error
    mine = Sizes.of(target, None)
    for name in ("target_type", "width", "layers", "tokens", "vocabulary"):
        if getattr(sizes, name) != getattr(mine, name):
            raise InputError(
                f"the draft head '{folder}' is for a target whose {name.replace('_', ' ')} is "
                f"{getattr(sizes, name)!r}, but this target's is {getattr(mine, name)!r}: train one for it "
                f"with crossspec train heads"
            )
    head = make_head(values["kind"], sizes, values["options"])
    fill(head, folder / WEIGHTS)
    return head.to(target.device).eval().requires_grad_(False)


def fill(module: nn.Module, file: Path, what: str = "draft head") -> None:
    """Take the weights from a file; raises InputError where they are missing or others."""
    try:
        module.load_state_dict(load_file(file))
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"the weights '{file}' of a {what} are missing or damaged ({first_line(error)}): copy them again"
        ) from error
    except RuntimeError as error:
        raise InputError(
            f"the weights '{file}' are not those of the {what} that its config.json describes "
            f"({first_line(error)}): take both from the same training"
        ) from error


def head_folders(folder: Path) -> list[Path]:
    """The heads in a folder of heads, by name; none where there is no such folder."""
    return sorted(path.parent for path in folder.glob("*/config.json"))
