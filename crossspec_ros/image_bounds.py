"""Bounds of an image's size: checked before it is decoded or resized, so that no message costs gigabytes."""

from __future__ import annotations

from crossspec_ros.errors import InputError

MOST_PIXELS = 50_000_000
"""More than 8K video has (33 million); as RGB 150 MB."""
MOST_ASPECT = 200
"""Long edge by short edge; stitched panoramas have up to 10, range images of lidars 64. Qwen's processor
refuses more than this."""


def check_size(width: int, height: int) -> None:
    """Raise InputError for an image that no camera sends, or that becomes huge when its short edge grows."""
    if width * height > MOST_PIXELS:
        raise InputError(
            f"an image has {width}x{height} pixels, more than the {MOST_PIXELS} that are taken: let the "
            f"camera publish smaller ones"
        )
    if max(width, height) > MOST_ASPECT * min(width, height):
        raise InputError(
            f"an image of {width}x{height} is more than {MOST_ASPECT} times as long as wide: check the node "
            f"that publishes it"
        )
