"""The tiny target's vision tower as the beginning of another: it knows the synthetic world already.

Of CLIP's tower, SigLIP's lacks the class token and the norm before the layers; the norm becomes part of the
patches' weights, with the deviation that it has on average.
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
"""Layers that are taken: the fourth of CLIP's tower is not what Video-LLaVA reads."""
WIDTH, HEADS, PATCH = 192, 4, 16
ACTIVATION = "quick_gelu"
_PREFIX = "video_tower."


def take_tiny_eyes(tower: Any, folder: Path, pixels: Tensor) -> None:
    """Put the weights of the target in `folder` into a SigLIP `tower` of as many layers or more.

    Args:
        pixels: (n, 3, H, W) of -1..1, some frames that the tower will see.
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
    patches, places = (tiny[f"embeddings.{name}_embedding.weight"] for name in ("patch", "position"))
    mean, deviation = torch.tensor(CLIP_MEAN), torch.tensor(CLIP_STD)
    offset = (patches * ((0.5 - mean) / deviation)[:, None, None]).sum((1, 2, 3))
    patches, places = patches / (2 * deviation)[:, None, None], places[1:]
    seen = F.conv2d(pixels.cpu(), patches, offset, stride=PATCH).flatten(2).mT + places
    gain, added = tiny["pre_layrnorm.weight"], tiny["pre_layrnorm.bias"]
    spread = seen.var(-1, unbiased=False).sqrt().mean()
    norm = gain[:, None] * (torch.eye(WIDTH) - 1 / WIDTH) / spread
    state["embeddings.patch_embedding.weight"] = torch.einsum("ij,j...->i...", norm, patches)
    state["embeddings.patch_embedding.bias"] = norm @ offset + added
    state["embeddings.position_embedding.weight"] = places @ norm.T
    tower.load_state_dict(state)
