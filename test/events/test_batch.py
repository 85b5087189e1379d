from __future__ import annotations

import numpy as np
from crossspec_lab.samples.event_files import random_batch
from event_samples import assert_equal
from refusals import refused

from crossspec_ros.events.batch import EventBatch


def test_slices_joined_again_are_the_batch():
    batch = random_batch(100)
    assert_equal(EventBatch.concat([batch[:30], batch[30:30], batch[30:]]), batch)
    assert len(batch[np.flatnonzero(batch.p)]) == batch.p.sum()


def test_batches_of_different_sensors_do_not_join():
    with refused("batches-of-two-sensors", ValueError):
        EventBatch.concat([EventBatch.empty(640, 480), EventBatch.empty(346, 260)])
    with refused("batches-none", ValueError):
        EventBatch.concat([])
