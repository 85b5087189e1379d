"""Limits of an image's size, checked before the image is decoded or resized."""

from __future__ import annotations

from crossspec_ros.errors import InputError

MAX_PIXELS = 50_000_000
"""Maximum pixels of an image, 150 MB as RGB. 8K video has 33 million."""
MAX_ASPECT = 200
"""Maximum ratio of the long edge to the short one, as in Qwen's processor. Lidar images have 64."""


def check_size(width: int, height: int) -> None:
    """Raise InputError for an image with too many pixels, or with too long an edge to be resized."""
    if width * height > MAX_PIXELS:
        raise InputError(
            f"an image has {width}x{height} pixels, but the maximum is {MAX_PIXELS}: let the camera publish "
            f"smaller images"
        )
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise InputError(
            f"an image of {width}x{height} pixels has an aspect ratio above {MAX_ASPECT}: check the node "
            f"that publishes it"
        )
