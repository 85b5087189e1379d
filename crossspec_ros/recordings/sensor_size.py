"""Sizes of common event sensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crossspec_ros.events.packets import MAX_SIZE

_STRAY = 0.001
"""Maximum fraction of events outside the assumed sensor."""
_SENSORS = ((128, 128), (240, 180), (346, 260), (320, 320), (640, 480), (768, 640), (1280, 720))
"""(width, height), the smaller sensors first."""


def is_size(width: float, height: float) -> bool:
    """Return whether a sensor of this size can be encoded."""
    return all(value in range(1, MAX_SIZE + 1) for value in (width, height))


def count_pixels(values: np.ndarray) -> np.ndarray:
    """Count the events (`MAX_SIZE`,) of each row or column in coordinates (N,) of any type."""
    inside = values[(values >= 0) & (values < MAX_SIZE)]
    return np.bincount(inside.astype(np.intp), minlength=MAX_SIZE)


def sensor_size(counts: Sequence[np.ndarray] | np.ndarray) -> tuple[int, int]:
    """Return (width, height) of the smallest common sensor that holds all but 0.1 % of the events.

    `counts` are those of x and of y from `count_pixels`. Where no common sensor is large enough, the size is
    that of the largest coordinates.
    """
    most = counts[0].sum() * _STRAY
    # Events at each coordinate or beyond it.
    beyond = [np.append(axis[::-1].cumsum()[::-1], 0) for axis in counts]
    for size in _SENSORS:
        if sum(axis[end] for axis, end in zip(beyond, size, strict=True)) <= most:
            return size
    return int(np.count_nonzero(beyond[0])), int(np.count_nonzero(beyond[1]))
