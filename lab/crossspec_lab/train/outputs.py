"""Checkpoints that training writes; they replace older ones together."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safetensors.torch import save_file

from crossspec_ros.models.eventgpt import TOWER, EventGPTModule


@contextmanager
def new_files(to: Path) -> Iterator[Path]:
    """Yield a scratch folder. Its files replace those of their names below `to` at the end."""
    to.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".crossspec-", dir=to) as name:
        folder = Path(name)
        yield folder
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                place = to / path.relative_to(folder)
                place.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, place)


def write_model(module: Any, source: Path, out: Path) -> None:
    """Write a checkpoint in bfloat16: the weights, and the JSON files of the checkpoint in `source`."""
    module = module.bfloat16()
    with new_files(out) as scratch:
        if isinstance(module, EventGPTModule):
            state = {
                name.replace(TOWER, f"{TOWER}vision_model."): tensor.contiguous()
                for name, tensor in module.state_dict().items()
            }
            save_file(state, scratch / "model.safetensors", metadata={"format": "pt"})
        else:
            # transformers writes the layout that it reads for its own classes only.
            module.__class__ = next(
                c for c in type(module).__mro__ if c.__module__.startswith("transformers.")
            )
            module.save_pretrained(scratch)
        for file in source.rglob("*.json"):
            copy = scratch / file.relative_to(source)
            copy.parent.mkdir(exist_ok=True)
            shutil.copyfile(file, copy)
