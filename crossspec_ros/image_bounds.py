"""Bounds of an image's size, checked before it is decoded or resized."""

from __future__ import annotations

from crossspec_ros.errors import InputError

MAX_PIXELS = 50_000_000
"""150 MB as RGB; 8K video has 33 million."""
MAX_ASPECT = 200
"""Long edge by short edge, as in Qwen's processor. Range images of lidars have 64."""


def check_size(width: int, height: int) -> None:
    """Raise InputError for an image that is too large, or becomes so when its short edge grows."""
    if width * height > MAX_PIXELS:
        raise InputError(
            f"an image has {width}x{height} pixels, more than the {MAX_PIXELS} that are taken: let the "
            f"camera publish smaller ones"
        )
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise InputError(
            f"an image of {width}x{height} is more than {MAX_ASPECT} times as long as wide: check the node "
            f"that publishes it"
        )
