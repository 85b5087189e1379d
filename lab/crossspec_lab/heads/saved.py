"""Files of trained heads, in the format of `head_files`, and the heads in a folder of models."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from crossspec_ros.drafting.heads.head import Head
from crossspec_ros.drafting.heads.head_files import VERSION, WEIGHTS, head_folders, load_head
from crossspec_ros.errors import InputError
from crossspec_ros.files import replace_file
from crossspec_ros.models.base import EventModel, VideoTarget
from crossspec_ros.paths import found

_LOG = logging.getLogger(__name__)


def stored_dtype(tensors: dict[str, Tensor]) -> torch.dtype:
    """Return the dtype in which weights are stored."""
    return next((one.dtype for one in tensors.values() if one.is_floating_point()), torch.float32)


def save_head(head: Head, folder: Path, notes: dict[str, Any]) -> None:
    """Write it, with `notes` about its training; in bfloat16, as checkpoints are."""
    config = {
        "crossspec_head": VERSION,
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
