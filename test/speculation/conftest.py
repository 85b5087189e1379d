"""The shipped tiny pair and windows of the world, loaded once."""

from __future__ import annotations

import numpy as np
import pytest

from crossspec_ros.paths import share_dir
from crossspec_ros.training.dataset import event_window, frame_window
from crossspec_ros.vlm.loading import ModelPair, load_pair
from crossspec_ros.windows.window import Window


@pytest.fixture(scope="session")
def pair() -> ModelPair:
    return load_pair(share_dir() / "models" / "tiny")


@pytest.fixture(scope="session")
def windows() -> list[Window]:
    seeds = range(2_000_000, 2_000_004)
    return [Window(i, 0, 10**9, event_window(seed), frame_window(seed)) for i, seed in enumerate(seeds)]


@pytest.fixture(scope="session")
def blind(windows: list[Window]) -> Window:
    """Events only."""
    return Window(9, 0, 10**9, windows[0].event_images, np.empty((0, 0, 0, 3), np.uint8))
