"""From RGB pictures to what a CLIP tower expects, as `CLIPImageProcessor` does it.

transformers' processor classes need torchvision, which is not there beside a CPU build of torch.
"""

from __future__ import annotations

import numpy as np
import torch

from crossspec_ros.windows.resize import resize_shortest

_MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
_STD = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)


def clip_pixels(images: np.ndarray, size: int) -> torch.Tensor:
    """Resize the shortest edge to `size`, crop the centre, scale and normalise.

    Args:
        images: (n, H, W, 3) uint8 RGB.

    Returns:
        (n, 3, size, size) float32.
    """
    cropped = np.stack([_centre(resize_shortest(image, size), size) for image in images])
    normal = (cropped.astype(np.float32) / 255.0 - _MEAN) / _STD
    return torch.from_numpy(np.ascontiguousarray(normal.transpose(0, 3, 1, 2)))


def _centre(image: np.ndarray, size: int) -> np.ndarray:
    top, left = (image.shape[0] - size) // 2, (image.shape[1] - size) // 2
    return image[top : top + size, left : left + size]
