"""Shrink an image to the size that the models read, as CLIP's image processor does."""

from __future__ import annotations

import numpy as np
from PIL import Image

from crossspec_ros.errors import InputError
from crossspec_ros.image_bounds import check_size

MAX_ENLARGED = 3840 * 2160
"""Pixels; 600 bytes of a 1x200 image would become 84 MB. A lidar's range image of 16x1024 has fewer, with a
short edge of up to 360."""


def resize_shortest(image: np.ndarray, size: int) -> np.ndarray:
    """Resize (H, W, 3) uint8 so that its shortest edge has `size` pixels; 0 keeps it as it is.

    Bicubic with antialiasing and a long edge truncated to an integer, as `CLIPImageProcessor` has it, so that
    resizing before the topic and after it is the same. Raises InputError for an image that is, or would
    become, too large.
    """
    height, width = image.shape[:2]
    scaled = scaled_size(width, height, size)
    if scaled == (width, height):
        return image
    return np.asarray(Image.fromarray(image).resize(scaled, Image.Resampling.BICUBIC))


def scaled_size(width: int, height: int, size: int) -> tuple[int, int]:
    """Width and height after `resize_shortest`; raises InputError as that does."""
    check_size(width, height)
    if size == 0:
        return width, height
    scaled = (size, size * height // width) if width <= height else (size * width // height, size)
    if scaled[0] * scaled[1] > max(MAX_ENLARGED, width * height):
        raise InputError(
            f"an image of {width}x{height} with a short edge of {size} pixels would have "
            f"{scaled[0]}x{scaled[1]}, more than {MAX_ENLARGED} pixels: set a smaller size, or let the "
            f"camera publish less oblong images"
        )
    return scaled
