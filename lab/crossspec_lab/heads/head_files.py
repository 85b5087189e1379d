"""Files of draft heads: `config.json` describes a head, `model.safetensors` holds its weights."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from crossspec_lab.heads.adapter import Adapter
from crossspec_lab.heads.eagle import Eagle
from crossspec_lab.heads.head import Head, Sizes
from crossspec_lab.heads.language_model import LanguageModel
from crossspec_lab.heads.medusa import Medusa, read_medusa
from crossspec_lab.heads.speculators_format import read_speculators
from crossspec_lab.heads.weights import WEIGHTS, fill, read_tensors
from crossspec_ros.errors import InputError, first_line
from crossspec_ros.files import replace_file
from crossspec_ros.models.base import EventModel, VideoTarget
from crossspec_ros.models.config_files import read_json
from crossspec_ros.paths import found

KINDS: dict[str, type[Head]] = {one.kind: one for one in (Adapter, Eagle, LanguageModel, Medusa)}
_OF_TARGET = ("target_type", "width", "layers", "tokens", "vocabulary")
_OF_DRAFT = ("draft_width", "draft_tokens")


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
            f"a head of the kind {kind} cannot have the options {options} ({first_line(error)}): take the "
            f"config.json that came with the weights"
        ) from error


def load_head(folder: Path, target: VideoTarget, draft: EventModel | None = None) -> Head:
    """Load the head in `folder`, which has the folder's name, to the target's device and dtype.

    The formats of vllm-project/speculators and of vLLM's Medusa heads are read, too.

    Raises InputError that names a missing or damaged file, or a head of another target or event draft.
    """
    file = folder / "config.json"
    if not file.is_file():
        raise InputError(f"'{folder}' holds no draft head, for it has no config.json: name one's folder")
    values = read_json(file)
    if "speculators_model_type" in values:
        head: Head = read_speculators(folder, target)
    elif values.get("model_type") == "medusa":
        head = read_medusa(folder, target)
    else:
        head = _own_format(folder, file, target, draft)
    head.name = folder.name
    return head.to(target.device, target.dtype).eval().requires_grad_(False)


def _own_format(folder: Path, file: Path, target: VideoTarget, draft: EventModel | None) -> Head:
    values = read_json(file, ["crossspec_head", "kind", "sizes", "options"])
    sizes = Sizes(**values["sizes"])
    head, mine = make_head(values["kind"], sizes, values["options"]), Sizes.of(target, draft)
    for name in _OF_TARGET + (_OF_DRAFT if draft is not None and "events" in head.needs else ()):
        its, ours = getattr(sizes, name), getattr(mine, name)
        if its != ours:
            raise InputError(
                f"the draft head '{folder}' is for models whose {name.replace('_', ' ')} is {its!r}, but "
                f"here it is {ours!r}: train one with crossspec train heads"
            )
    return fill(head, read_tensors(folder / WEIGHTS), folder / WEIGHTS)


def save_head(head: Head, folder: Path, notes: dict[str, Any]) -> None:
    """Write it, with `notes` about its training; in bfloat16, as checkpoints are."""
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
    # As bytes, since the library's own files are for their owner alone.
    replace_file(folder / WEIGHTS, save(tensors, metadata={"format": "pt"}))


def head_folders(folder: Path) -> list[Path]:
    """Return the folders in `folder` that hold a head each, in order."""
    return sorted(path.parent for path in folder.glob("*/config.json"))


def fitting_heads(
    models: Path, named: str | None, target: VideoTarget, draft: EventModel | None
) -> list[Head]:
    """Load the heads that fit these models, and leave out others.

    They lie in the folder `heads` of `models`, and of the target's own folder where it is `named` apart.
    """
    folders = [models, *([found(named)] if named else [])]
    fitting = {}
    for path in (path for folder in folders for path in head_folders(folder / "heads")):
        with suppress(InputError):
            fitting[path.name] = load_head(path, target, draft)
    return [*fitting.values()]
