"""Event images are those of EventGPT."""

from __future__ import annotations

import numpy as np
from crossspec_lab.world.event_images import render
from event_samples import batches
from hypothesis import given

from crossspec_ros.events.batch import EventBatch

BLUE, RED = (0, 0, 255), (255, 0, 0)


def reference(batch: EventBatch) -> np.ndarray:
    """EventGPT's own loop."""
    image = np.full((batch.height, batch.width, 3), 255, np.uint8)
    for x, y, p in zip(batch.x, batch.y, batch.p, strict=True):
        image[y, x] = RED if p else BLUE
    return image


@given(batches(width=20, height=10))
def test_rendering_equals_the_reference(batch):
    np.testing.assert_array_equal(render(batch), reference(batch))
