"""Files of draft heads: `config.json` describes a head, `model.safetensors` holds its weights."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save

from crossspec_lab.heads.eagle import Eagle, speculators_options
from crossspec_lab.heads.head import Head, Sizes
from crossspec_lab.heads.language_model import LanguageModel
from crossspec_lab.heads.medusa import Medusa, medusa_options
from crossspec_ros.errors import InputError, one_line
from crossspec_ros.files import replace_file
from crossspec_ros.models.base import EventModel, VideoTarget
from crossspec_ros.models.config_files import read_json
from crossspec_ros.paths import found

WEIGHTS = "model.safetensors"
KINDS: dict[str, type[Head]] = {one.kind: one for one in (Eagle, LanguageModel, Medusa)}


def make_head(kind: str, sizes: Sizes, options: dict[str, Any]) -> Head:
    """Make an untrained head of one of `KINDS`."""
    return KINDS[kind](sizes, **options)


def load_head(folder: Path, target: VideoTarget, draft: EventModel | None = None) -> Head:
    """Load the head in `folder`, which has the folder's name, to the target's device and dtype.

    It may have the format of `save_head`, of EAGLE-3 heads of vllm-project/speculators, or of vLLM's Medusa
    heads.

    Raises InputError for missing or damaged files, and for a head of another target.
    """
    values, sizes = read_json(folder / "config.json"), Sizes.of(target, draft)
    try:
        tensors = load_file(folder / WEIGHTS)
        if "speculators_model_type" in values:
            head: Head = Eagle(sizes, **speculators_options(values, tensors))
        elif values.get("model_type") == "medusa":
            head = Medusa(sizes, **medusa_options(values, tensors))
        else:
            _check_sizes(Sizes(**values["sizes"]), sizes)
            head = make_head(values["kind"], sizes, values["options"])
        head.load_state_dict(tensors)
    except MemoryError:
        raise
    # safetensors, transformers and torch refuse files and values with errors of many kinds.
    except Exception as error:
        raise InputError(
            f"'{folder}' has no draft head for this target ({one_line(error)[:200]}): name another head's "
            f"folder, or run crossspec train heads"
        ) from error
    head.name = folder.name
    return head.to(target.device, target.dtype).eval().requires_grad_(False)


def _check_sizes(its: Sizes, own: Sizes) -> None:
    for name in ("target_type", "width", "layers", "tokens", "vocabulary"):
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
    fitting = {}
    for folder in (models, *([found(named)] if named else [])):
        for config in sorted(folder.glob("heads/*/config.json")):
            with suppress(InputError):
                fitting[config.parent.name] = load_head(config.parent, target, draft)
    return [*fitting.values()]
