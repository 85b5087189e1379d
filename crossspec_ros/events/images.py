"""Event images exactly as EventGPT makes them."""

from __future__ import annotations

import numpy as np

from crossspec_ros.events.batch import EventBatch

# Indexed by polarity; 2 stands for a pixel that no event reached.
_PALETTE = np.array([(0, 0, 255), (255, 0, 0), (255, 255, 255)], np.uint8)


def render(batch: EventBatch) -> np.ndarray:
    """The batch as an RGB image (H, W, 3) uint8, white where no event is.

    A pixel's last event colours it: blue for polarity 0, red for 1.
    """
    last = np.full(batch.height * batch.width, 2, np.uint8)
    # numpy assigns in order, so that of several events on one pixel the last one stays.
    last[batch.y.astype(np.intp) * batch.width + batch.x] = batch.p
    return _PALETTE[last].reshape(batch.height, batch.width, 3)


def event_images(batch: EventBatch, k: int) -> list[tuple[np.ndarray, int]]:
    """Cut the batch into `k` slices of equally many events (the last takes the rest) and render each.

    Returns (image (H, W, 3) uint8, end) pairs, where `end` is the time just after the slice's last event, in
    the unit of `batch.t`; none for an empty batch. With fewer than `k` events all but the last are white.
    Algorithm: get_event_images_list of EventGPT (XduSyL/EventGPT, common/common.py).
    """
    if not len(batch):
        return []
    size = len(batch) // k
    stops = [size * (i + 1) for i in range(k - 1)] + [len(batch)]
    starts = [0, *stops[:-1]]
    return [
        (render(batch[start:stop]), int(batch.t[max(stop, 1) - 1]) + 1)
        for start, stop in zip(starts, stops, strict=True)
    ]
