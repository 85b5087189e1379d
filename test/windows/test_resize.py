"""Resizing before the topic must be the resizing the models were made for."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import refused

from crossspec_ros.windows.resize import resize_shortest


@pytest.mark.parametrize(
    ("shape", "expected"), [((480, 640), (64, 85)), ((640, 480), (85, 64)), ((50, 50), (64, 64))]
)
def test_the_shortest_edge_gets_the_size(shape, expected):
    image = np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8)
    assert resize_shortest(image, 64).shape == (*expected, 3)


def test_zero_keeps_the_image():
    image = np.zeros((5, 7, 3), np.uint8)
    assert resize_shortest(image, 0) is image


def test_it_averages_as_antialiasing_does():
    checkerboard = np.indices((64, 64)).sum(0) % 2 * 255
    small = resize_shortest(np.repeat(checkerboard[..., None].astype(np.uint8), 3, 2), 8)
    assert abs(small.astype(int) - 127).max() <= 20


@pytest.mark.parametrize(
    ("shape", "size", "code"),
    [
        ((20_000, 1), 224, "resize-too-long"),
        ((64, 12_801), 8, "resize-too-long"),
        ((200, 1), 384, "resize-enlarged"),
        ((8000, 8000), 0, "resize-too-large"),
    ],
)
def test_an_image_that_would_take_gigabytes_is_refused(shape, size, code):
    image = np.broadcast_to(np.uint8(0), (*shape, 3))
    with refused(code, shape=f"{shape[1]}x{shape[0]}"):
        resize_shortest(image, size)
    assert resize_shortest(np.zeros((32, 2048, 3), np.uint8), 8).shape == (8, 512, 3)
    with refused("resize-much-enlarged"):
        resize_shortest(np.zeros((64, 2048, 3), np.uint8), 4096)
