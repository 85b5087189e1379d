"""The two files of a head, or of another small module: `config.json` and `model.safetensors`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from crossspec_ros.errors import InputError, first_line, one_line
from crossspec_ros.files import replace_file, tensors_file

WEIGHTS = "model.safetensors"
Module = TypeVar("Module", bound=nn.Module)

_LONGEST = 200
_MOST_STEPS = 10_000
"""Calls of torch that make a module; one of 300 layers takes 7500 and a second."""
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


def filled(
    make: Callable[[], Module], file: Path, tensors: dict[str, Tensor] | None = None, what: str = _HEAD
) -> Module:
    """What `make` makes, with the weights from a file, of which `tensors` may be known.

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


def write(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write both files of a head."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "config.json", (json.dumps(config, indent=1) + "\n").encode())
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    # As bytes, since the library's own files are for their owner alone.
    replace_file(folder / WEIGHTS, save(contiguous, metadata={"format": "pt"}))
