"""Event images are those of EventGPT."""

from __future__ import annotations

import numpy as np
from crossspec_lab.world.event_images import render
from event_samples import batches
from hypothesis import given
from hypothesis import strategies as st


@given(st.sampled_from(((20, 10), (7, 3))).flatmap(lambda size: batches(*size)))
def test_rendering_equals_the_loop_of_eventgpt(batch):
    """Four pixels are painted at a time, and some images have a rest."""
    expected = np.full((batch.height, batch.width, 3), 255, np.uint8)
    for x, y, p in zip(batch.x, batch.y, batch.p, strict=True):
        expected[y, x] = (255, 0, 0) if p else (0, 0, 255)
    np.testing.assert_array_equal(render(batch), expected)
