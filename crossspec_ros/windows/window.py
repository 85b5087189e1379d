"""One window as the captioner gets it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Window:
    """What was seen in `[start_ns, end_ns)`; images are RGB uint8 in order of their stamps.

    `event_images` is (k, H, W, 3), `frames` is (n, H', W', 3), `frame_stamps_ns` are the n capture times;
    k and n may be 0. `missing` counts the images that were announced but never arrived.
    """

    index: int
    start_ns: int
    end_ns: int
    event_images: np.ndarray
    frames: np.ndarray
    frame_stamps_ns: tuple[int, ...] = ()
    missing: int = 0
