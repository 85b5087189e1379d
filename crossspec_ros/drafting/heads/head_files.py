"""Files of a draft head: `config.json` describes it, `model.safetensors` holds its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from crossspec_ros.drafting.heads.head import Head, Sizes
from crossspec_ros.errors import InputError, first_line, one_line
from crossspec_ros.extensions import extension, extension_names
from crossspec_ros.files import tensors_file
from crossspec_ros.models.base import EventModel, VideoTarget
from crossspec_ros.models.config_files import read_json

LANGUAGE_MODEL = "language_model"
"""Kind of head that this package has; extensions bring further kinds."""
PEFT = "adapter_config.json"
"""File in the folder of a LoRA adapter, which changes the draft itself."""
VERSION = 1
"""Version of our format."""
WEIGHTS = "model.safetensors"
_MAX_REASON = 200
_OF_TARGET = ("target_type", "width", "layers", "tokens", "vocabulary")
_OF_DRAFT = ("draft_width", "draft_tokens")
Module = TypeVar("Module", bound=nn.Module)


def make_head(kind: str, sizes: Sizes, options: dict[str, Any]) -> Head:
    """Make an untrained head; raise InputError for an unknown kind or invalid options."""
    if kind == LANGUAGE_MODEL:
        from crossspec_ros.drafting.heads.language_model import LanguageModel

        head_class: type[Head] = LanguageModel
    elif kind in (others := extension_names("head.")):
        head_class = extension(f"head.{kind}", f"the kind {kind!r} of draft heads")
    else:
        kinds = ", ".join((LANGUAGE_MODEL, *others))
        raise InputError(
            f"there is no head of the kind {kind!r}: it must be one of {kinds}; the laboratory has more "
            f"(`pip install ./lab` in the repository of crossspec_ros)"
        )
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


def load_head(folder: Path, target: VideoTarget, draft: EventModel | None = None) -> Head:
    """Load the head in `folder` to the target's device and dtype.

    Extensions read the formats of vllm-project/speculators and of vLLM's Medusa heads.

    Raises InputError that names a missing or damaged file, or a head of another target or event draft.
    """
    file = folder / "config.json"
    if not file.is_file():
        raise InputError(f"'{folder}' holds no draft head, for it has no config.json: name one's folder")
    values = read_json(file)
    foreign = "speculators" if "speculators_model_type" in values else values.get("model_type")
    if foreign in ("speculators", "medusa"):
        read = extension(f"head_format.{foreign}", f"the format of the draft head '{folder}'")
        head: Head = read(folder, target)
    else:
        head = _own_format(folder, file, target, draft)
    return head.to(target.device, target.dtype).eval().requires_grad_(False)


def _own_format(folder: Path, file: Path, target: VideoTarget, draft: EventModel | None) -> Head:
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
    head, mine = make_head(values["kind"], sizes, values["options"]), Sizes.of(target, draft)
    for name in _OF_TARGET + (_OF_DRAFT if draft is not None and "events" in head.needs else ()):
        its, ours = getattr(sizes, name), getattr(mine, name)
        if its != ours:
            raise InputError(
                f"the draft head '{folder}' is for models whose {name.replace('_', ' ')} is {its!r}, but "
                f"here it is {ours!r}: train one with crossspec train heads"
            )
    return fill(head, read_tensors(folder / WEIGHTS), folder / WEIGHTS)


def head_folders(folder: Path) -> list[Path]:
    """Return the folders in `folder` that hold a head each, in order."""
    return sorted(path.parent for path in folder.glob("*/config.json"))


def read_tensors(file: Path) -> dict[str, Tensor]:
    """Read a safetensors file; raise InputError where it is missing or damaged."""
    try:
        return load_file(tensors_file(file))
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"the weights '{file}' are missing or damaged ({first_line(error)}): copy them again"
        ) from error


def fill(module: Module, tensors: dict[str, Tensor], file: Path) -> Module:
    """Return the module with the tensors of `file`; raise InputError where they do not fit."""
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        raise InputError(
            f"the weights '{file}' do not fit the config.json beside them ({one_line(error)[:_MAX_REASON]}): "
            f"take both from the same training"
        ) from error
    return module
