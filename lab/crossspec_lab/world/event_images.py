"""Event images of equally many events, as EventGPT draws them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.images import Canvas


def render(batch: EventBatch) -> np.ndarray:
    """Return the batch as an RGB image (H, W, 3) uint8; a pixel's last event colours it."""
    canvas = Canvas(batch.width, batch.height)
    canvas.draw(batch)
    return canvas.image()


def event_images(batch: EventBatch, k: int) -> list[np.ndarray]:
    """Cut a batch into `k` slices of equally many events and render each as an image (H, W, 3) uint8.

    The last slice takes the rest; an empty batch has no images. Algorithm: get_event_images_list of EventGPT
    (XduSyL/EventGPT, common/common.py).
    """
    if not len(batch):
        return []
    stops = [len(batch) // k * i for i in range(k)] + [len(batch)]
    return [render(batch[start:stop]) for start, stop in pairwise(stops)]
