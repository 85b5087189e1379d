"""Files of a draft head: `config.json` describes it, `model.safetensors` holds its weights."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from crossspec_ros.drafting.heads.head import Head, Sizes
from crossspec_ros.errors import InputError, first_line, one_line
from crossspec_ros.extensions import extension, extension_names
from crossspec_ros.files import tensors_file
from crossspec_ros.models.base import EventModel, VideoTarget
from crossspec_ros.models.config_files import check_pointer, read_json
from crossspec_ros.paths import found

_LOG = logging.getLogger(__name__)

LANGUAGE_MODEL = "language_model"
"""Kind of head that this package has; extensions bring further kinds."""
PEFT = "adapter_config.json"
"""File in the folder of a LoRA adapter, which changes the draft itself."""
VERSION = 1
"""Version of our format."""
WEIGHTS = "model.safetensors"
Module = TypeVar("Module", bound=nn.Module)

_MAX_REASON = 200
_HEAD = "draft head"


def make_head(kind: str, sizes: Sizes, options: dict[str, Any]) -> Head:
    """Make an untrained head; raise InputError for an unknown kind or invalid options."""
    head_class = _class(kind)
    try:
        return head_class(sizes, **options)
    except MemoryError:
        raise
    # transformers and torch refuse values with errors of many kinds.
    except Exception as error:
        raise InputError(
            f"a head of the kind {kind} cannot have the options {options} ({first_line(error)}): take the "
            f"config.json that came with the weights"
        ) from error


def _class(kind: str) -> type[Head]:
    if kind == LANGUAGE_MODEL:
        from crossspec_ros.drafting.heads.language_model import LanguageModel

        return LanguageModel
    known = extension_names("head.")
    if kind not in known:
        kinds = ", ".join((LANGUAGE_MODEL, *known))
        raise InputError(
            f"there is no head of the kind {kind!r}: it must be one of {kinds}; the laboratory has more "
            f"(`pip install ./lab` in the repository of crossspec_ros)"
        )
    head_class: type[Head] = extension(f"head.{kind}", f"the kind {kind!r} of draft heads")
    return head_class


def load_head(folder: Path, target: VideoTarget, draft: EventModel | None = None) -> Head:
    """Load the head in `folder` to the target's device and dtype.

    Extensions read the formats of vllm-project/speculators and of vLLM's Medusa heads.

    Raises InputError that names a missing or damaged file, or a head of another target or event draft.
    """
    file = folder / "config.json"
    if not file.is_file():
        raise InputError(f"'{folder}' holds no draft head, for it has no config.json: name one's folder")
    values = read_json(file)
    if foreign := _foreign_format(values):
        read = extension(f"head_format.{foreign}", f"the format of the draft head '{folder}'")
        return _ready(read(folder, target), target)
    values = read_json(file, ["crossspec_head", "kind", "sizes", "options"])
    if values["crossspec_head"] != VERSION:
        raise InputError(
            f"'{file}' has version {values['crossspec_head']} of the format, but {VERSION} is known: train "
            f"the head anew with crossspec train heads"
        )
    try:
        sizes = Sizes(**values["sizes"])
    except TypeError as error:
        raise InputError(
            f"'{file}' describes no draft head ({error}): take the one that came with the weights"
        ) from error
    mine = Sizes.of(target, draft)
    for name in ("target_type", "width", "layers", "tokens", "vocabulary"):
        _compare(folder, name, "a target", sizes, mine)
    head = filled(lambda: make_head(values["kind"], sizes, values["options"]), folder / WEIGHTS)
    if draft is not None and "events" in head.needs:
        for name in ("draft_width", "draft_tokens"):
            _compare(folder, name, "models", sizes, mine)
    return _ready(head, target)


def _foreign_format(values: dict[str, Any]) -> str:
    """Return the name of another project's format by its config; empty for ours."""
    if "speculators_model_type" in values:
        return "speculators"
    return "medusa" if values.get("model_type") == "medusa" else ""


def _compare(folder: Path, name: str, whose: str, its: Sizes, mine: Sizes) -> None:
    if getattr(its, name) != getattr(mine, name):
        raise InputError(
            f"the draft head '{folder}' is for {whose} whose {name.replace('_', ' ')} is "
            f"{getattr(its, name)!r}, but here it is {getattr(mine, name)!r}: train one with crossspec train "
            f"heads"
        )


def _ready(head: Head, target: VideoTarget) -> Head:
    return head.to(target.device, target.dtype).eval().requires_grad_(False)


def head_folders(folder: Path) -> list[Path]:
    """Return the heads in a folder of heads, by name; none where the folder is missing."""
    return sorted(path.parent for path in folder.glob("*/config.json"))


def fitting_heads(
    models: Path, named: str | None, target: VideoTarget, draft: EventModel | None
) -> dict[str, Head]:
    """Load the heads that fit these models, by name; log why others do not.

    They lie in the folder `heads` of `models`, and of the target's own folder where it is `named` apart.
    """
    folders = [models, *([found(named)] if named else [])]
    fitting = {}
    for path in (path for folder in folders for path in head_folders(folder / "heads")):
        try:
            fitting[path.name] = load_head(path, target, draft)
        except InputError as error:
            _LOG.info("left out: %s", error)
    return fitting


def stored(file: Path, what: str = _HEAD) -> dict[str, Tensor]:
    """Read the tensors of a weights file; raise InputError where it is missing or damaged."""
    check_pointer(file)
    try:
        return load_file(tensors_file(file))
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"the weights '{file}' of a {what} are missing or damaged ({first_line(error)}): copy them again"
        ) from error


def stored_dtype(tensors: dict[str, Tensor]) -> torch.dtype:
    """Return the dtype in which weights are stored."""
    return next((one.dtype for one in tensors.values() if one.is_floating_point()), torch.float32)


def filled(
    make: Callable[[], Module], file: Path, tensors: dict[str, Tensor] | None = None, what: str = _HEAD
) -> Module:
    """Make a module and load the weights in `file`, or `tensors` where the caller read them.

    Raises InputError where weights are missing or do not fit.
    """
    module = make()
    tensors = stored(file, what) if tensors is None else tensors
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        raise InputError(
            f"the weights '{file}' are not those of the {what} that its config.json describes "
            f"({one_line(error)[:_MAX_REASON]}): take both from the same training"
        ) from error
    return module
