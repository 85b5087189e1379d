"""Windows of the synthetic world for training, each drawn once.

Window i lies in a short drive with seed i, so every window is of another drive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from crossspec_lab.world.camera import FRAME_PERIOD_S, events, frame
from crossspec_lab.world.event_images import event_images
from crossspec_lab.world.scene import Scene, drive
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.files import replacing
from crossspec_ros.windows.grid import WindowGrid
from crossspec_ros.windows.resize import resize_shortest

FRAMES, EVENT_IMAGES, SIDE = 8, 5, 64
HELD_OUT = 1_000_000
"""First seed that no training uses."""
UNSEEN = 100_000
"""First seed that the training of the tiny models does not use; draft heads learn from here to HELD_OUT."""

Draw: TypeAlias = Callable[[int], NDArray[np.uint8]]


def scenes_of(seed: int) -> list[Scene]:
    """Return the drive whose last scene but one is window `seed`; things can leave in the last."""
    return drive(seed, 3 + seed % 4)


def frame_times(seed: int) -> list[float]:
    """Return the times of a window's frames in seconds from its start.

    The synchronizer would choose these frames, at a random phase of the camera.
    """
    phase = np.random.default_rng([seed, 0xF0]).uniform(0, FRAME_PERIOD_S)
    start = len(scenes_of(seed)) - 2
    grid = WindowGrid(slots=FRAMES)
    stamps: dict[int, float] = {}
    for t in np.arange(start + phase, start + 1, FRAME_PERIOD_S).tolist():
        stamps.setdefault(grid.slot(int(t * 1e9)), t - start)
    return list(stamps.values())


def frame_window(seed: int) -> NDArray[np.uint8]:
    """Return (8, 64, 85, 3) uint8 RGB frames, as the synchronizer would send them."""
    scenes = scenes_of(seed)
    start = len(scenes) - 2
    return np.stack([resize_shortest(frame(scenes, seed, start + t), SIDE) for t in frame_times(seed)])


def event_window(seed: int) -> NDArray[np.uint8]:
    """Return (5, 64, 85, 3) uint8 RGB event images.

    The sensor sees 33 pictures a second, enough for images of this size.
    """
    scenes = scenes_of(seed)
    start = len(scenes) - 2
    batch = EventBatch.concat(list(events(scenes, seed, start, start + 1, rate_hz=33)))
    return np.stack([resize_shortest(image, SIDE) for image in event_images(batch, EVENT_IMAGES)])


class DrawnWindows:
    """Windows with these seeds as a data set; each is drawn at its first use and kept in `folder`."""

    def __init__(self, folder: Path, draw: Draw, seeds: Sequence[int]) -> None:
        self._folder, self._draw, self._seeds = folder, draw, seeds
        folder.mkdir(parents=True, exist_ok=True)

    def __len__(self) -> int:
        return len(self._seeds)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return the `images` and the seed (`seeds`) of a window."""
        seed = self._seeds[index]
        file = self._folder / f"{self._draw.__name__}_{seed}.npy"
        if not file.exists():
            cv2.setNumThreads(1)
            with replacing(file) as scratch, scratch.open("wb") as stream:
                np.save(stream, self._draw(seed))
        return {"images": np.load(file), "seeds": seed}
