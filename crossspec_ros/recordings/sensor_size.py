"""Sizes of common event sensors."""

from __future__ import annotations

import numpy as np

from crossspec_ros.events.packets import MAX_SIZE

_STRAY = 0.001
"""Maximum fraction of events outside the assumed sensor."""
_SENSORS = ((128, 128), (240, 180), (346, 260), (320, 320), (640, 480), (768, 640), (1280, 720))
"""(width, height), the smaller sensors first."""


def is_size(width: float, height: float) -> bool:
    """Return whether a sensor of this size can be encoded."""
    return all(value in range(1, MAX_SIZE + 1) for value in (width, height))


def assume_size(x: np.ndarray, y: np.ndarray) -> tuple[int, int]:
    """Return (width, height) of the smallest common sensor that holds all but 0.1 % of the events.

    Where no common sensor is large enough, the size is that of the largest coordinates.
    """
    x, y = (axis[(axis >= 0) & (axis < MAX_SIZE)] for axis in (x, y))
    for width, height in _SENSORS:
        if np.count_nonzero(x >= width) + np.count_nonzero(y >= height) <= _STRAY * len(x):
            return width, height
    return int(x.max(initial=0)) + 1, int(y.max(initial=0)) + 1
