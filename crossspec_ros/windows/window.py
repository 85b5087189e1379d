"""One window as the captioner gets it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

EVENTS = "events"
FRAMES = "frames"
"""Streams of a window."""


class Counts(NamedTuple):
    """Numbers that the synchronizer announces of a closed window."""

    frames: int
    event_images: int
    events: int = 0
    lost_packets: int = 0
    late_events: int = 0
    late_frames: int = 0
    covered_ms: int = 1000


@dataclass(frozen=True)
class Window:
    """One window, `[start_ns, end_ns)`; images are RGB uint8 in order of their stamps.

    `event_images` is (k, H, W, 3), `frames` is (n, H', W', 3), `frame_stamps_ns` are the n capture times;
    k and n may be 0. `missing` counts announced images that never arrived, `surplus` images that were not
    announced, `events` the camera's events, `lost_packets` lost event packets. `late_events`
    and `late_frames` came after their own windows had closed, since the window before this one closed.
    `covered_ms` of the window lie between the first and the last data of the recording or live stream.
    """

    index: int
    start_ns: int
    end_ns: int
    event_images: np.ndarray
    frames: np.ndarray
    frame_stamps_ns: tuple[int, ...] = ()
    missing: int = 0
    surplus: int = 0
    events: int = 0
    lost_packets: int = 0
    late_events: int = 0
    late_frames: int = 0
    covered_ms: int = 1000
