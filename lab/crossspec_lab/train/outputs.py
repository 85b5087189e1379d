"""Checkpoints that training writes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from crossspec_ros.models.eventgpt import TOWER, EventGPTModule


def write_model(module: Any, source: Path, out: Path) -> None:
    """Write a checkpoint in bfloat16: the weights, and the JSON files of the checkpoint in `source`."""
    module = module.bfloat16()
    out.mkdir(parents=True, exist_ok=True)
    if isinstance(module, EventGPTModule):
        state = {
            name.replace(TOWER, f"{TOWER}vision_model."): tensor.contiguous()
            for name, tensor in module.state_dict().items()
        }
        save_file(state, out / "model.safetensors", metadata={"format": "pt"})
    else:
        # transformers writes the layout that it reads for its own classes only.
        kinds = type(module).__mro__
        module.__class__ = next(kind for kind in kinds if kind.__module__.startswith("transformers."))
        module.save_pretrained(out)
    for file in source.rglob("*.json"):
        copy = out / file.relative_to(source)
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(file, copy)
