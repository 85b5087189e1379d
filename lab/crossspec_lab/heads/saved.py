"""Files of trained heads, in the format of `head_files`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from crossspec_ros.drafting.heads.head import Head
from crossspec_ros.drafting.heads.head_files import VERSION, WEIGHTS
from crossspec_ros.files import replace_file


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
