"""Memory that nobody uses goes back."""

from __future__ import annotations

import numpy as np

from crossspec_ros.telemetry.process_memory import give_back, resident_mb


def test_free_memory_goes_back():
    # In pieces of the heap, with one that stays at its end.
    many = [np.ones(4096) for _ in range(4000)]
    last = many.pop()
    full_mb = resident_mb()
    del many
    give_back()
    assert resident_mb() < full_mb - 100 and last.all()
