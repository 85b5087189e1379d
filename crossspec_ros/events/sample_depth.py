"""Samples of 10, 12 or 14 bits in images of 16: found by their range, and moved to the upper bits."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.camera_images import wide_samples
from crossspec_ros.events.encoded_images import encoded_size, only_pixels
from crossspec_ros.image_bounds import check_size

LOOKED_AT = 50
"""Images of a topic by which its depth is told."""
_DEPTHS = (10, 12, 14)
_FEW_GREYS = 8
"""Greys of the 256 that are captioned; fewer show next to nothing."""


class SampleDepth:
    """Finds out how many of 16 bits the samples of one topic have."""

    def __init__(self) -> None:
        self._images = self._largest = 0
        self._smallest = 0xFFFF

    def add(self, message: Any) -> bool:
        """Look at the next image, of rclpy or of rosbags; whether more are to be looked at."""
        if self._images < LOOKED_AT and (samples := _samples(message)) is not None:
            self._images += 1
            self._largest = max(self._largest, int(samples.max()))
            self._smallest = min(self._smallest, int(samples.min()))
            return True
        return False

    @property
    def shift(self) -> int:
        """Bits by which samples are to be moved up: only where their range ends as that of a depth does."""
        return next((16 - bits for bits in _DEPTHS if self._largest == (1 << bits) - 1), 0)

    def finding(self) -> str | None:
        """Finding where not all 16 bits are used, in words."""
        if not self.shift and 0 < self._largest - self._smallest < _FEW_GREYS << 8:
            return (
                f"the samples of 16 bits are {self._smallest} to {self._largest} in the first {self._images} "
                f"images, and of their upper 8 bits, which are captioned, next to nothing is left: let the "
                f"camera publish mono8, rgb8 or bgr8, or stretch them over all 16"
            )
        bits = next((bits for bits in _DEPTHS if self._largest < 1 << bits), 16)
        if bits == 16 or self._smallest >= self._largest:
            return None
        found = f"the largest sample of 16 bits is {self._largest} in the first {self._images} images"
        if self.shift:
            return (
                f"{found}, so the camera has {bits} bits and they are read as such; live they look dark: let "
                f"it publish mono8, rgb8 or bgr8"
            )
        return (
            f"{found}, below {1 << bits} as of a camera with {bits} bits, or of a dark scene; the upper 8 "
            f"bits are captioned and look dark: let the camera publish mono8, rgb8 or bgr8, or use all 16"
        )


def moved_up(message: Any, shift: int) -> Any:
    """The message with its samples moved up by so many bits; one that cannot be read stays as it is."""
    samples = _samples(message)
    if samples is None:
        return message
    samples = (np.minimum(samples, 0xFFFF >> shift) << shift).astype(np.uint16)
    if hasattr(message, "format"):
        message.data = cv2.imencode(".png", samples)[1].reshape(-1)
    else:
        order = ">u2" if message.is_bigendian else "<u2"
        message.step = samples.size // message.height * 2
        message.data = samples.astype(order).view(np.uint8).reshape(-1)
    return message


def _samples(message: Any) -> np.ndarray | None:
    """An image's samples (H, W, channels) where they have 16 bits and can be read."""
    try:
        if not hasattr(message, "format"):
            return wide_samples(message)
        data = bytes(message.data)
        # A PNG says its depth behind its size.
        if not data.startswith(b"\x89PNG") or data[24:25] != b"\x10" or not (size := encoded_size(data)):
            return None
        check_size(*size)
        pixels = cv2.imdecode(np.frombuffer(only_pixels(data), np.uint8), cv2.IMREAD_UNCHANGED)
    except (InputError, cv2.error):
        return None
    return pixels if pixels is not None and pixels.dtype == np.uint16 else None
