from __future__ import annotations

import numpy as np
import pytest
from event_samples import assert_equal, random_batch

from crossspec_ros.events.batch import EventBatch


def test_slices_joined_again_are_the_batch():
    batch = random_batch(100)
    assert_equal(EventBatch.concat([batch[:30], batch[30:30], batch[30:]]), batch)
    assert len(batch[np.flatnonzero(batch.p)]) == batch.p.sum()


def test_batches_of_different_sensors_do_not_join():
    with pytest.raises(ValueError, match="2 sensor sizes"):
        EventBatch.concat([EventBatch.empty(640, 480), EventBatch.empty(346, 260)])
    with pytest.raises(ValueError, match="0 sensor sizes"):
        EventBatch.concat([])
