"""A head's folder: `config.json` with what it is, and `model.safetensors` with its weights."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from crossspec_ros.drafting.heads.head import Head, Sizes
from crossspec_ros.errors import InputError, first_line, one_line
from crossspec_ros.extensions import extension, extension_names
from crossspec_ros.files import tensors_file
from crossspec_ros.models.base import EventModel, VideoTarget
from crossspec_ros.models.config_files import read_json
from crossspec_ros.paths import found

_LOG = logging.getLogger(__name__)

KINDS = ("eagle", "language_model", "medusa")
"""Files in this folder that hold a head; extensions bring further kinds."""
PEFT = "adapter_config.json"
"""File in the folder of a LoRA adapter, which changes the draft itself."""
VERSION = 1
"""Version of our format."""
WEIGHTS = "model.safetensors"
Module = TypeVar("Module", bound=nn.Module)

_LONGEST = 200
_MOST_STEPS = 10_000
"""Calls of torch that make a module; one of 300 layers takes 7500 and a second."""
_HEAD = "draft head"


def make_head(kind: str, sizes: Sizes, options: dict[str, Any]) -> Head:
    """An untrained head; raises InputError for a kind or options that there are not."""
    found = _class(kind)
    try:
        return found(sizes, **options)
    except MemoryError:
        raise
    # Libraries refuse values with errors of their own kinds.
    except Exception as error:
        raise InputError(
            f"a head of the kind {kind} cannot have the options {options} ({first_line(error)}): take the "
            f"config.json that came with the weights"
        ) from error


def _class(kind: str) -> type[Head]:
    if kind not in KINDS:
        further = extension_names("head.")
        if kind not in further:
            raise InputError(
                f"there is no head of the kind {kind!r}: it must be one of {', '.join((*KINDS, *further))}; "
                f"the laboratory has more (`pip install ./lab` in the repository of crossspec_ros)"
            )
        found: type[Head] = extension(f"head.{kind}", f"the kind {kind!r} of draft heads")
        return found
    module = import_module(f"{__package__}.{kind}")
    return next(
        one
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, Head) and one.__module__ == module.__name__
    )


def load_head(folder: Path, target: VideoTarget, draft: EventModel | None = None) -> Head:
    """The head in `folder`, in our format or one of others', on the target's device and in its dtype.

    Raises InputError that names the file which is missing, damaged, or of another target, or of another event
    draft, where the head reads what there is of it.
    """
    # They read their weights with what is here.
    from crossspec_ros.drafting.heads.medusa import read_medusa
    from crossspec_ros.drafting.heads.speculators_format import read_speculators

    file = folder / "config.json"
    if not file.is_file():
        raise InputError(f"'{folder}' holds no draft head, for it has no config.json: name one's folder")
    values = read_json(file)
    if "speculators_model_type" in values:
        return _ready(read_speculators(folder, target), target)
    if values.get("model_type") == "medusa":
        return _ready(read_medusa(folder, target), target)
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
    """The heads in a folder of heads, by name; none where there is no such folder."""
    return sorted(path.parent for path in folder.glob("*/config.json"))


def fitting_heads(
    models: Path, named: str | None, target: VideoTarget, draft: EventModel | None
) -> dict[str, Head]:
    """Heads that are for these models, by name; why others are not is logged.

    They lie in the folder `heads` of `models`, and of the target where its folder is `named` apart.
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


def filled(
    make: Callable[[], Module], file: Path, tensors: dict[str, Tensor] | None = None, what: str = _HEAD
) -> Module:
    """Module that `make` makes, with the weights from a file, of which `tensors` may be known.

    Raises InputError where they are missing or others; first its outline is compared, for a config can ask
    for any sizes.
    """
    with torch.device("meta"), _FewSteps():
        outline = make()
    tensors = stored(file, what) if tensors is None else tensors
    _fill(outline, file, {name: tensor.to("meta") for name, tensor in tensors.items()}, what)
    module = make()
    _fill(module, file, tensors, what)
    return module


class _FewSteps(TorchFunctionMode):
    """Within it, torch may be called so often that the largest module can be made."""

    def __init__(self) -> None:
        super().__init__()
        self._steps = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self._steps += 1
        # The end of a block without gradients is one too, and must not be missed.
        if self._steps > _MOST_STEPS and func is not torch._C._set_grad_enabled:
            raise ValueError("it has too many parts")
        return func(*args, **(kwargs or {}))


def _fill(module: nn.Module, file: Path, tensors: dict[str, Tensor], what: str) -> None:
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        raise InputError(
            f"the weights '{file}' are not those of the {what} that its config.json describes "
            f"({one_line(error)[:_LONGEST]}): take both from the same training"
        ) from error
