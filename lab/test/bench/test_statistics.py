"""Intervals and paired tests, on samples whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest
from crossspec_lab.bench import statistics


@pytest.mark.parametrize(("drives", "share"), [(6, 0.86), (10, 0.88), (25, 0.93)])
def test_intervals_hold_the_truth_as_often_as_the_report_says(drives: int, share: float) -> None:
    assert (
        f"{drives} " in statistics.FEW_DRIVES and f"{share:.0%}".replace("%", " %") in statistics.FEW_DRIVES
    )
    rng, held = np.random.default_rng(0), 0
    for _ in range(150):
        # Windows of a drive are alike.
        sample = rng.normal(3, 1, drives).repeat(4) + rng.normal(0, 0.1, 4 * drives)
        found = statistics.interval(lambda x: float(np.mean(x)), sample, draws=100)
        held += found.low <= 3 <= found.high
    assert held / 150 == pytest.approx(share, abs=0.06)


def test_windows_of_which_nothing_is_known_shift_no_drives() -> None:
    # Shifted by two windows, all drives are half of one kind and half of the other, and so alike.
    sample = np.tile([0.0, 10.0], 5).repeat(4)
    sample[:2] = np.nan
    found = statistics.mean(sample.tolist())
    assert found.value == pytest.approx(np.nanmean(sample)) and found.high - found.low > 4
    sample[16:] = np.nan
    assert np.isnan(statistics.mean(sample.tolist()).low)
    assert np.isnan(statistics.mean([np.nan] * 8).value)


def test_a_paired_test_tells_a_shift_from_none() -> None:
    rng = np.random.default_rng(2)
    base = rng.normal(100, 30, 50)
    assert statistics.paired_p(base, base) == 1
    assert statistics.paired_p(base + 5 + rng.normal(0, 1, 50), base) < 0.001
    assert statistics.paired_p(base + rng.normal(0, 1, 50), base) > 0.01


def test_figures_have_three_digits_that_count() -> None:
    values = (0.0, 123.4, 12.34, 0.01234, -5.678, 1e-7)
    texts = ["0", "123", "12.3", "0.0123", "-5.68", "below 0.0001"]
    assert list(map(statistics.number, values)) == texts
