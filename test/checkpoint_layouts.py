"""Writes checkpoints in the layouts that occur, from the tensors of a shipped one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from crossspec_ros.paths import tiny_models

TINY = tiny_models()
TOWER = "model.visual_tower.visual_tower."

Tensors = dict[str, torch.Tensor]


def copied(name: str, to: Path) -> Path:
    """A copy of the shipped `target` or `draft` without its weights."""
    return Path(shutil.copytree(TINY / name, to, ignore=shutil.ignore_patterns("*.safetensors")))


def weights(name: str) -> Tensors:
    return load_file(TINY / name / "model.safetensors")


def hub_weights() -> Tensors:
    """The target's tensors under the names of the published port, and a still-image tower as it has one."""
    tensors = {}
    for name, tensor in weights("target").items():
        renamed = name.replace("model.language_model.", "language_model.model.").replace(
            "lm_head.", "language_model.lm_head."
        )
        renamed = renamed.removeprefix("model.").replace("video_tower.", "video_tower.vision_model.")
        renamed = renamed.replace("vision_model.vision_model.", "vision_model.").replace(
            "language_model.language_model.", "language_model."
        )
        tensors[renamed] = tensor
    # Of no shape that the model could take in.
    tensors["image_tower.vision_model.embeddings.class_embedding"] = torch.zeros(3)
    tensors["image_tower.vision_model.embeddings.position_ids"] = torch.arange(17)[None]
    return tensors


def write(folder: Path, tensors: Tensors, layout: str) -> None:
    """`layout`: "safetensors", "bin" or "old bin"; then " shards" and " index" for several files."""
    words = layout.split()
    stem, suffix = ("pytorch_model", ".bin") if "bin" in words else ("model", ".safetensors")
    if "shards" not in words:
        save(folder / f"{stem}{suffix}", tensors, old="old" in words)
        return
    names = sorted(tensors)
    parts = [names[i::3] for i in range(3)]
    files = [f"{stem}-{i + 1:05}-of-00003{suffix}" for i in range(3)]
    for file, part in zip(files, parts, strict=True):
        save(folder / file, {name: tensors[name] for name in part}, old="old" in words)
    if "index" in words:
        places = {name: file for file, part in zip(files, parts, strict=True) for name in part}
        index = {"metadata": {"total_size": 1}, "weight_map": places}
        (folder / f"{stem}{suffix}.index.json").write_text(json.dumps(index))


def save(file: Path, tensors: Tensors, old: bool = False) -> None:
    if file.suffix == ".bin":
        torch.save(tensors, file, _use_new_zipfile_serialization=not old)
    else:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file)


def edit(file: Path, **values: object) -> None:
    """Set values of a JSON file; None takes one away."""
    content = json.loads(file.read_text()) | values
    file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
