"""Event images are those of EventGPT."""

from __future__ import annotations

import numpy as np
import pytest
from event_samples import batch_of, batches
from hypothesis import given

from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.images import event_images, render

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


def test_the_fixture_of_eventgpt(shared):
    folder = shared / "data/eventgpt_tiny"
    with np.load(folder / "events.npz") as events, np.load(folder / "expected.npz") as expected:
        batch = batch_of(events["t"], events["x"], events["y"], events["p"])
        images = event_images(batch, 5)
        np.testing.assert_array_equal(np.stack([image for image, _ in images]), expected["event_images"])
        assert images[-1][1] == batch.t[-1] + 1


@pytest.mark.parametrize(
    ("count", "images", "slices", "ends"),
    [
        (8, 3, [[0, 1], [2, 3], [4, 5, 6, 7]], [12, 14, 18]),
        # The last takes all where there are fewer events than images.
        (2, 4, [[], [], [], [0, 1]], [11, 11, 11, 12]),
        (0, 5, [], []),
    ],
)
def test_slices_have_equal_counts_and_the_last_takes_the_rest(count, images, slices, ends):
    batch = batch_of(range(10, 10 + count), range(count), [0] * count, [1] * count, width=8, height=1)
    made = event_images(batch, images)
    assert [np.flatnonzero(image[0, :, 1] == 0).tolist() for image, _ in made] == slices
    assert [end for _, end in made] == ends
