"""Training windows of the synthetic world, drawn once to disk and resumable.

Window i is the last of a short drive with seed i, so that every window is of another drive.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import cv2
import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from crossspec_lab.world.camera import FRAME_PERIOD_S, events, frame
from crossspec_lab.world.event_images import event_images
from crossspec_lab.world.scene import Scene, drive
from crossspec_ros.errors import InputError, first_line
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.files import replace_file
from crossspec_ros.windows.grid import WindowGrid
from crossspec_ros.windows.resize import resize_shortest

FRAMES, EVENT_IMAGES, SIDE = 8, 5, 64
HELD_OUT = 1_000_000
"""Seeds from here on are never trained on."""
UNSEEN = 100_000
"""From here to HELD_OUT are drives that the tiny models did not see, for what is trained on their states."""

Draw = Callable[[int], NDArray[np.uint8]]
_AT_ONCE = 200
"""Windows that an interrupted drawing loses at most."""


def scenes_of(seed: int) -> list[Scene]:
    """A drive whose last scene but one is training window `seed`; a later scene follows so that things can
    leave."""
    return drive(seed, 3 + seed % 4)


def frame_times(seed: int) -> list[float]:
    """Times of the frames of a window in seconds behind its start: those that the synchronizer would choose,
    at a random phase of the camera."""
    phase = np.random.default_rng([seed, 0xF0]).uniform(0, FRAME_PERIOD_S)
    start = len(scenes_of(seed)) - 2
    grid = WindowGrid(slots=FRAMES)
    stamps: dict[int, float] = {}
    for t in np.arange(start + phase, start + 1, FRAME_PERIOD_S).tolist():
        stamps.setdefault(grid.slot(int(t * 1e9)), t - start)
    return list(stamps.values())


def frame_window(seed: int) -> NDArray[np.uint8]:
    """(8, 64, 85, 3) uint8 RGB: the frames as the synchronizer would send them."""
    scenes = scenes_of(seed)
    return small_frames(scenes, seed, len(scenes) - 2, frame_times(seed))


def event_window(seed: int) -> NDArray[np.uint8]:
    """(5, 64, 85, 3) uint8 RGB event images."""
    scenes = scenes_of(seed)
    return small_event_images(scenes, seed, len(scenes) - 2)


def small_frames(scenes: list[Scene], seed: int, start: int, times: Sequence[float]) -> NDArray[np.uint8]:
    """Frames (n, 64, 85, 3) of the second from `start` on, at these times behind it."""
    return np.stack([resize_shortest(frame(scenes, seed, start + t), SIDE) for t in times])


def small_event_images(scenes: list[Scene], seed: int, start: int) -> NDArray[np.uint8]:
    """Event images (5, 64, 85, 3) of the second from `start` on; the sensor sees 33 pictures a second, enough
    for pictures this small."""
    batch = EventBatch.concat(list(events(scenes, seed, start, start + 1, rate_hz=33)))
    return np.stack([resize_shortest(image, SIDE) for image in event_images(batch, EVENT_IMAGES)])


def build(path: Path, draw: Draw, seeds: range, progress: Callable[[int], None]) -> NDArray[np.uint8]:
    """The windows of `seeds` as one array on disk, drawn on all cores; goes on where an earlier call stopped.

    Args:
        progress: called with the number of windows that are there.

    Raises:
        InputError: `path` holds windows of other seeds or sizes.
    """
    cv2.setNumThreads(1)
    done_file = path.with_suffix(".json")
    shape = (len(seeds), *draw(seeds[0]).shape)
    done = 0
    if done_file.exists() and path.exists():
        try:
            done = json.loads(done_file.read_text())["windows"]
            if np.load(path, mmap_mode="r").shape != shape or done not in range(len(seeds) + 1):
                raise ValueError("there are other windows")
        except (OSError, EOFError, LookupError, TypeError, ValueError) as error:
            raise InputError(
                f"'{path}' is damaged or of another training ({first_line(error)}): remove it, or name "
                f"another --work folder"
            ) from error
    data = open_memmap(path, "r+" if done else "w+", np.uint8, shape)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(done, len(seeds), _AT_ONCE):
            end = min(start + _AT_ONCE, len(seeds))
            data[start:end] = list(pool.map(draw, seeds[start:end]))
            data.flush()
            replace_file(done_file, json.dumps({"windows": end}).encode())
            progress(end)
    return data


DRAWN: dict[str, Draw] = {"frames": frame_window, "events": event_window}


def build_unseen(
    work: Path, count: int, progress: Callable[[str, int], None], names: Sequence[str] = tuple(DRAWN)
) -> list[NDArray[np.uint8]]:
    """Frames and event images, as `names` asks for, of `count` windows that the tiny models did not see, as
    `build` does.

    `progress` is called with the name in `DRAWN` and the number of windows that are there.
    """
    seeds = range(UNSEEN, UNSEEN + count)
    return [build(work / f"{name}.npy", DRAWN[name], seeds, partial(progress, name)) for name in names]
