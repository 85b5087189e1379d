"""Events and their hypothesis strategies, shared by the tests of this folder."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from crossspec_ros.events.batch import EventBatch

FIELDS = ("t", "x", "y", "p")


def batch_of(t, x, y, p, width=640, height=480) -> EventBatch:
    return EventBatch(
        np.array(t, np.int64),
        np.array(x, np.uint16),
        np.array(y, np.uint16),
        np.array(p, np.uint8),
        width,
        height,
    )


def random_batch(
    count: int, seed: int = 0, t_start=0, duration_us=20_000, width=640, height=480
) -> EventBatch:
    rng = np.random.default_rng(seed)
    return batch_of(
        np.sort(rng.integers(t_start, t_start + duration_us, count)),
        rng.integers(0, width, count),
        rng.integers(0, height, count),
        rng.integers(0, 2, count),
        width,
        height,
    )


def assert_equal(actual: EventBatch, expected: EventBatch) -> None:
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(actual, field), getattr(expected, field), err_msg=field)
        assert getattr(actual, field).dtype == getattr(expected, field).dtype


ANY_START = st.integers(0, (1 << 24) - 1)


@st.composite
def batches(draw, width=640, height=480, start=ANY_START) -> EventBatch:
    """Runs of neighbours on a row as a sensor reads them out, mixed with lone events; steps up to 16 s."""
    steps = st.one_of(st.integers(0, 3), st.integers(0, 5000), st.integers(0, 16_000_000))
    t, events = draw(start), []
    for _ in range(draw(st.integers(0, 12))):
        t += draw(steps) if events else 0
        x, y, p = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1)), draw(st.integers(0, 1))
        for _ in range(draw(st.integers(1, 40))):
            events.append((t, min(x, width - 1), y, p))
            x += draw(st.sampled_from((0, 1, 1, 1, 1, 2, 5, 12, 13)))
    return batch_of(*np.array(events, np.int64).reshape(-1, 4).T, width, height)
