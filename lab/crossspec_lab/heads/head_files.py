"""Files of draft heads: `config.json` describes a head, `model.safetensors` holds its weights."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from crossspec_lab.heads.eagle import Eagle, speculators_options
from crossspec_lab.heads.head import Head, Sizes
from crossspec_lab.heads.language_model import LanguageModel
from crossspec_lab.heads.medusa import Medusa, medusa_options
from crossspec_ros.errors import InputError, first_line, one_line
from crossspec_ros.files import replace_file
from crossspec_ros.models.base import EventModel, VideoTarget
from crossspec_ros.models.config_files import read_json
from crossspec_ros.paths import found

WEIGHTS = "model.safetensors"
KINDS: dict[str, type[Head]] = {one.kind: one for one in (Eagle, LanguageModel, Medusa)}
_OF_TARGET = ("target_type", "width", "layers", "tokens", "vocabulary")


def make_head(kind: str, sizes: Sizes, options: dict[str, Any]) -> Head:
    """Make an untrained head; raise InputError for an unknown kind or invalid options."""
    if kind not in KINDS:
        raise InputError(f"there is no head of the kind {kind!r}: it must be one of {', '.join(KINDS)}")
    try:
        return KINDS[kind](sizes, **options)
    except MemoryError:
        raise
    # transformers and torch refuse values with errors of many kinds.
    except Exception as error:
        raise InputError(
            f"a head of the kind {kind} cannot have its options ({first_line(error)}): take the config.json "
            f"that came with the weights"
        ) from error


def load_head(folder: Path, target: VideoTarget, draft: EventModel | None = None) -> Head:
    """Load the head in `folder`, which has the folder's name, to the target's device and dtype.

    It may have the format of `save_head`, of EAGLE-3 heads of vllm-project/speculators, or of vLLM's Medusa
    heads.

    Raises InputError that names a missing or damaged file, or a head of another target.
    """
    file, weights = folder / "config.json", folder / WEIGHTS
    if not file.is_file():
        raise InputError(f"'{folder}' holds no draft head, for it has no config.json: name one's folder")
    values, sizes = read_json(file), Sizes.of(target, draft)
    tensors: dict[str, Tensor] = {}
    try:
        tensors |= load_file(weights)
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"the weights '{weights}' are missing or damaged ({first_line(error)}): copy them again"
        ) from error
    try:
        if "speculators_model_type" in values:
            kind, options = Eagle.kind, speculators_options(values, tensors)
        elif values.get("model_type") == "medusa":
            kind, options = Medusa.kind, medusa_options(values, tensors)
        else:
            kind, options, its = values["kind"], values["options"], Sizes(**values["sizes"])
            _check_sizes(its, sizes)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"'{file}' is of no draft head for this target ({one_line(error)[:200]}): name another head's "
            f"folder, or run crossspec train heads"
        ) from error
    head = make_head(kind, sizes, options)
    try:
        head.load_state_dict(tensors)
    except RuntimeError as error:
        raise InputError(
            f"the weights '{weights}' do not fit the config.json beside them ({one_line(error)[:200]}): "
            f"take both from the same training"
        ) from error
    head.name = folder.name
    return head.to(target.device, target.dtype).eval().requires_grad_(False)


def _check_sizes(its: Sizes, own: Sizes) -> None:
    for name in _OF_TARGET:
        size, needed = getattr(its, name), getattr(own, name)
        if size != needed:
            raise ValueError(f"its {name.replace('_', ' ')} is {size!r}, but this target's is {needed!r}")


def save_head(head: Head, folder: Path, notes: dict[str, Any]) -> None:
    """Write the head in bfloat16, with `notes` about its training."""
    config = {
        "crossspec_head": 1,
        "kind": head.kind,
        "sizes": asdict(head.sizes),
        "options": head.options,
        "training": notes,
    }
    tensors = {
        name: tensor.to(torch.bfloat16 if tensor.is_floating_point() else tensor.dtype).contiguous()
        for name, tensor in head.state_dict().items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "config.json", (json.dumps(config, indent=1) + "\n").encode())
    # The library itself would write a file that only its owner can read.
    replace_file(folder / WEIGHTS, save(tensors, metadata={"format": "pt"}))


def fitting_heads(
    models: Path, named: str | None, target: VideoTarget, draft: EventModel | None
) -> list[Head]:
    """Load the heads that fit these models, and leave out others.

    They are in the folder `heads` of `models`, and of the target's own folder if it is `named` apart.
    """
    folders = [models, *([found(named)] if named else [])]
    fitting = {}
    for config in (config for folder in folders for config in sorted(folder.glob("heads/*/config.json"))):
        with suppress(InputError):
            fitting[config.parent.name] = load_head(config.parent, target, draft)
    return [*fitting.values()]
