"""The state of a training that may be interrupted: whole or not there, and nothing in it is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from crossspec_ros.errors import InputError, first_line
from crossspec_ros.files import read_small, replacing


def save_checkpoint(state: dict[str, Any], file: Path) -> None:
    """Write it in place of what is there."""
    with replacing(file) as scratch:
        torch.save(state, scratch)


def read_progress(file: Path) -> dict[str, Any]:
    """The object in a JSON file of a --work folder; raises InputError where it is damaged."""
    try:
        values = json.loads(read_small(file))
        if not isinstance(values, dict):
            raise ValueError("no object")
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(file, error) from error
    return values


def damaged(file: Path, error: Exception) -> InputError:
    """Error for a file of a --work folder that cannot be read."""
    return InputError(
        f"'{file}' is damaged ({type(error).__name__}: {first_line(error)}): name another --work folder or "
        f"remove it"
    )


def load_checkpoint(file: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """The state that `save_checkpoint` wrote; raises InputError where it is damaged."""
    try:
        return torch.load(file, weights_only=True, map_location=device)
    # Whatever torch.load makes of a file that is none of its own.
    except Exception as error:
        raise InputError(
            f"the checkpoint '{file}' is damaged ({type(error).__name__}): remove it, and the training "
            f"starts anew"
        ) from error
