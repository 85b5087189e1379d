"""Preprocessing of RGB frames for vision towers, bit-equal to transformers' processors.

Those need torchvision, which cannot be loaded with the CPU build of torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional

from crossspec_ros.models.config_files import CLIP_MEAN, CLIP_STD, HALF
from crossspec_ros.windows.resize import resize_shortest

_MEAN, _STD = np.array(CLIP_MEAN, np.float32), np.array(CLIP_STD, np.float32)


def clip_pixels(images: np.ndarray, size: int) -> torch.Tensor:
    """Resize the shortest edge to `size`, crop the centre, scale and normalise, for a CLIP tower.

    Args:
        images: (n, H, W, 3) uint8 RGB.

    Returns:
        (n, 3, size, size) float32.
    """
    resized = np.stack([resize_shortest(image, size) for image in images])
    top, left = (resized.shape[1] - size) // 2, (resized.shape[2] - size) // 2
    cropped = resized[:, top : top + size, left : left + size]
    normal = (cropped.astype(np.float32) / 255.0 - _MEAN) / _STD
    return torch.from_numpy(np.ascontiguousarray(normal.transpose(0, 3, 1, 2)))


def square_pixels(
    images: np.ndarray, size: int, mean: Sequence[float] = HALF, deviation: Sequence[float] = HALF
) -> torch.Tensor:
    """Stretch to a square of `size` pixels a side and normalise (default: to -1..1, for a SigLIP tower).

    Args:
        images: (n, H, W, 3) uint8 RGB.

    Returns:
        (n, 3, size, size) float32.
    """
    # A copy, because torch does not accept read-only arrays.
    pixels = torch.from_numpy(np.array(images)).permute(0, 3, 1, 2)
    # By torch and not PIL, which rounds otherwise: torchvision's resize calls torch.
    square = functional.interpolate(pixels, size=(size, size), mode="bicubic", antialias=True)
    middle, scale = (torch.tensor(values)[:, None, None] * 255 for values in (mean, deviation))
    return (square.float() - middle) / scale
