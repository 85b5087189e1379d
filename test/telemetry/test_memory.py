"""Free memory is returned to the system."""

from __future__ import annotations

import numpy as np

from crossspec_ros.telemetry.process_memory import give_back, resident_mb


def test_free_memory_is_returned():
    # The last block of the heap stays in use, which keeps the heap from shrinking by itself.
    many = [np.ones(4096) for _ in range(4000)]
    last = many.pop()
    full_mb = resident_mb()
    del many
    give_back()
    assert resident_mb() < full_mb - 100 and last.all()
