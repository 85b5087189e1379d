"""Batches of events, drawn at random and by hypothesis."""

from __future__ import annotations

import numpy as np
from crossspec_lab.samples.event_files import batch_of
from hypothesis import strategies as st

from crossspec_ros.events.batch import EventBatch

FIELDS = ("t", "x", "y", "p")


def assert_equal(actual: EventBatch, expected: EventBatch) -> None:
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(actual, field), getattr(expected, field), err_msg=field)
        assert getattr(actual, field).dtype == getattr(expected, field).dtype


@st.composite
def batches(draw, width=640, height=480, latest_start=(1 << 24) - 1) -> EventBatch:
    """Draw runs of neighbours on a row as a sensor reads them, and lone events; steps up to 16 s."""
    # Drawn by numpy: event by event hypothesis takes a hundred times as long.
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    runs = []
    t = draw(st.integers(0, latest_start))
    for length in rng.integers(1, 41, draw(st.integers(0, 12))):
        steps = rng.choice((0, 1, 1, 1, 1, 2, 5, 12, 13), length)
        x = np.minimum(rng.integers(0, width) + np.cumsum(steps), width - 1)
        run = np.broadcast_to((t, 0, rng.integers(0, height), rng.integers(0, 2)), (length, 4)).copy()
        run[:, 1] = x
        runs.append(run)
        t += int(rng.integers(0, rng.choice((4, 5001, 16_000_001))))
    return batch_of(*np.concatenate([np.empty((0, 4), np.int64), *runs]).T, width, height)
