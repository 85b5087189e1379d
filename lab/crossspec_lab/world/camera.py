"""Recordings of a drive by two cameras: frames at 20 Hz and events; their time starts with the drive."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from crossspec_lab.world.dvs_sensor import DvsSensor
from crossspec_lab.world.render import draw
from crossspec_lab.world.scene import Scene
from crossspec_ros.events.batch import EventBatch

SENSOR_SIZE = (320, 240)
"""Width and height of the event camera in pixels."""
FRAME_SIZE = (640, 480)
"""Width and height of the RGB camera in pixels."""
FRAME_PERIOD_S = 0.05
EVENTS_HZ = 200
"""Pictures a second that the event camera's pixels see."""


def frame(scenes: list[Scene], seed: int, t: float, size: tuple[int, int] = FRAME_SIZE) -> NDArray[np.uint8]:
    """Return the (H, W, 3) uint8 RGB frame at `t` seconds."""
    return draw(scenes, seed, t, *size, in_color=True)


def events(
    scenes: list[Scene], seed: int, start_s: int, end_s: int, rate_hz: int = EVENTS_HZ
) -> Iterator[EventBatch]:
    """Yield the events of [start_s, end_s), a batch for each of the pixels' `rate_hz` pictures a second."""
    step_us = 1_000_000 // rate_hz
    sensor = DvsSensor(
        draw(scenes, seed, start_s, *SENSOR_SIZE, in_color=False), start_s * 1_000_000 - 1, seed
    )
    for t_us in range(start_s * 1_000_000 + step_us - 1, end_s * 1_000_000, step_us):
        yield sensor.step(draw(scenes, seed, t_us * 1e-6, *SENSOR_SIZE, in_color=False), t_us)
