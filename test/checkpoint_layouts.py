"""Write checkpoints in all layouts, from the tensors of a shipped one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import target_architecture
from crossspec_ros.paths import tiny_models

TINY = tiny_models()
TOWER = "model.visual_tower.visual_tower."

Tensors = dict[str, torch.Tensor]


def load_target(folder: Path) -> Any:
    """Load the target in `folder` on the CPU in float32."""
    architecture = target_architecture(folder)
    return architecture.model(architecture.load(Placement()), architecture.tokenizer())


def copied(name: str, to: Path) -> Path:
    """Copy the shipped `target` or `draft` without its weights."""
    return Path(shutil.copytree(TINY / name, to, ignore=shutil.ignore_patterns("*.safetensors")))


def weights(name: str) -> Tensors:
    return load_file(TINY / name / "model.safetensors")


def hub_weights() -> Tensors:
    """Return the target's tensors by the names of the published port, and its tower for still images."""
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
    # Invalid shapes, which the model must not load.
    tensors["image_tower.vision_model.embeddings.class_embedding"] = torch.zeros(3)
    tensors["image_tower.vision_model.embeddings.position_ids"] = torch.arange(17)[None]
    return tensors


def write(folder: Path, tensors: Tensors, layout: str) -> None:
    """Write tensors in a layout: "safetensors", "bin" or "old bin", optionally with " shards index"."""
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
        weight_map = {name: file for file, part in zip(files, parts, strict=True) for name in part}
        index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
        (folder / f"{stem}{suffix}.index.json").write_text(json.dumps(index))


def save(file: Path, tensors: Tensors, old: bool = False) -> None:
    if file.suffix == ".bin":
        torch.save(tensors, file, _use_new_zipfile_serialization=not old)
    else:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file)


def edit(file: Path, **values: object) -> None:
    """Set values of a JSON file; None removes a value."""
    content = json.loads(file.read_text()) | values
    file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
