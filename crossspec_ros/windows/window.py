"""One window as the captioner gets it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

EVENTS = "events"
FRAMES = "frames"
"""Streams of a window."""


class WindowClosed(NamedTuple):
    """Nothing more will come for the window ending at `end_ns`, which has these numbers of images and events.

    `lost_packets` event packets are missing in its time, by the gaps in their sequence numbers. `late_events`
    and `late_frames` came too late for their own windows, since the window before this one closed.
    `covered_ms` of the window lie between the first and the last of all data.
    """

    end_ns: int
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

    `event_images` is (k, H, W, 3), `frames` is (n, H', W', 3), `frame_stamps_ns` are the n capture times,
    `event_image_stamps_ns` the k ends of slices; k and n may be 0. `missing` counts announced images that
    never arrived, `surplus` images that were not announced; the other numbers are those of `WindowClosed`.
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
    event_image_stamps_ns: tuple[int, ...] = ()
