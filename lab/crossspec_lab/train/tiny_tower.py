"""The tiny target's vision tower, which knows the synthetic world, as the beginning of a SigLIP tower.

A SigLIP tower has neither the class token of CLIP's nor its norm before the layers. The norm becomes part of
the patches' weights, with its mean deviation.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from crossspec_ros.models.config_files import CLIP_MEAN, CLIP_STD

LAYERS = 3
"""Layers to copy: Video-LLaVA does not read the fourth of CLIP's tower."""
_PREFIX = "video_tower."


def copy_tiny_tower(tower: Any, folder: Path, pixels: Tensor) -> None:
    """Copy the weights of the target in `folder` into a SigLIP `tower` of at least as many layers.

    Args:
        pixels: (n, 3, H, W) frames in -1..1, of which the mean deviation is measured.
    """
    stored = load_file(folder / "model.safetensors")
    tiny = {
        name.removeprefix(_PREFIX): tensor.float()
        for name, tensor in stored.items()
        if name.startswith(_PREFIX)
    }
    state = tower.state_dict()
    for name in state:
        if layer := re.match(r"encoder\.layers\.(\d+)\.", name):
            if int(layer[1]) < LAYERS:
                state[name] = tiny[name]
            elif "out_proj" in name or "fc2" in name:
                # A new layer changes little at first.
                state[name] = 0.1 * state[name]
    patches, positions = (tiny[f"embeddings.{name}_embedding.weight"] for name in ("patch", "position"))
    mean, deviation = torch.tensor(CLIP_MEAN), torch.tensor(CLIP_STD)
    offset = (patches * ((0.5 - mean) / deviation)[:, None, None]).sum((1, 2, 3))
    patches, positions = patches / (2 * deviation)[:, None, None], positions[1:]
    embedded = F.conv2d(pixels.cpu(), patches, offset, stride=patches.shape[-1]).flatten(2).mT + positions
    gain, added = tiny["pre_layrnorm.weight"], tiny["pre_layrnorm.bias"]
    spread = embedded.var(-1, unbiased=False).sqrt().mean()
    norm = gain[:, None] * (torch.eye(len(gain)) - 1 / len(gain)) / spread
    state["embeddings.patch_embedding.weight"] = torch.einsum("ij,j...->i...", norm, patches)
    state["embeddings.patch_embedding.bias"] = norm @ offset + added
    state["embeddings.position_embedding.weight"] = positions @ norm.T
    tower.load_state_dict(state)
