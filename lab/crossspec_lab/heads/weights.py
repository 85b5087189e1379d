"""Weights of draft heads in safetensors files."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from crossspec_ros.errors import InputError, first_line, one_line

WEIGHTS = "model.safetensors"
Module = TypeVar("Module", bound=nn.Module)


def read_tensors(file: Path) -> dict[str, Tensor]:
    """Read a safetensors file; raise InputError where it is missing or damaged."""
    try:
        return load_file(file)
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
            f"the weights '{file}' do not fit the config.json beside them ({one_line(error)[:200]}): "
            f"take both from the same training"
        ) from error
    return module


def stored_dtype(tensors: dict[str, Tensor]) -> torch.dtype:
    """Return the dtype in which weights are stored."""
    return next((one.dtype for one in tensors.values() if one.is_floating_point()), torch.float32)
