"""Intervals, paired tests, formulae and quality, on samples with certain answers."""

from __future__ import annotations

import numpy as np
import pytest
from crossspec_lab.bench import formulae, statistics
from crossspec_lab.bench.quality import attributes_right, scores
from crossspec_lab.bench.records import Record
from crossspec_lab.bench.statistics import spread
from crossspec_lab.bench.tables import Table, text
from crossspec_lab.world.phrases import caption
from crossspec_lab.world.scene import drive
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(("drives", "share"), [(6, 0.86), (10, 0.88), (25, 0.93)])
def test_intervals_have_the_reported_coverage(drives: int, share: float) -> None:
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


def test_missing_windows_shift_no_drives() -> None:
    # Shifted by two windows, all drives are half of one kind and half of the other, and so alike.
    sample = np.tile([0.0, 10.0], 5).repeat(4)
    sample[:2] = np.nan
    found = statistics.mean(sample.tolist())
    assert found.value == pytest.approx(np.nanmean(sample)) and found.high - found.low > 4
    sample[16:] = np.nan
    assert np.isnan(statistics.mean(sample.tolist()).low)
    assert np.isnan(statistics.mean([np.nan] * 8).value)


def test_paired_p_detects_a_shift() -> None:
    rng = np.random.default_rng(2)
    base = rng.normal(100, 30, 50)
    assert statistics.paired_p(base, base) == 1
    assert statistics.paired_p(base + 5 + rng.normal(0, 1, 50), base) < 0.001
    assert statistics.paired_p(base + rng.normal(0, 1, 50), base) > 0.01


def test_number_has_three_significant_digits() -> None:
    values = (0.0, 123.4, 12.34, 0.01234, -5.678, 1e-7)
    texts = ["0", "123", "12.3", "0.0123", "-5.68", "below 0.0001"]
    assert list(map(statistics.number, values)) == texts


def test_ratio_needs_drives_for_an_interval() -> None:
    assert set(statistics.sooner([2.0] * 8, [1.0] * 8)) == {"median", "p10", "p90"}
    found = statistics.sooner([20.0, 30.0] * 10, [10.0] * 20)
    assert 2 <= found["low"] <= found["median"] <= found["high"] <= 3
    assert "2.50 (2.00 to 3.00), 95 %: 2." in text(found)


def test_table_has_the_columns_of_all_rows() -> None:
    found = spread([1.0, 2.0, 3.0])
    assert found["median"] == 2 and found["p10"] == pytest.approx(1.2)
    table = Table("", {"a|": {"x": found, "n": 1}, "b": {"y": "z"}}, "decoder")
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in str(table).splitlines()]
    assert lines[0] == ["decoder", "x", "n", "y"]
    assert lines[2:] == [["a/", "2.00 (1.20 to 2.80)", "1", "-"], ["b", "-", "-", "z"]]
    assert Table(**table.json()) == table


def test_quality_is_full_for_the_truth_only() -> None:
    truths = [caption(scene) for scene in drive(5, 2)]

    def records(texts: list[str]) -> list[Record]:
        return [Record("c", "d", i, text=text, truth=truths[i]) for i, text in enumerate(texts)]

    full = scores(records(truths))
    assert full["bleu4"] == pytest.approx(100, abs=1e-3) and full["rouge_l"] == pytest.approx(100)
    other = scores(records([truths[0].replace("yellow", "red"), truths[1]]))
    assert all(other[name] < value for name, value in full.items())
    assert attributes_right(records(truths)[0]) == 1 > attributes_right(records(truths[::-1])[0])


def test_published_examples_come_out() -> None:
    assert formulae.expected_tokens(0.279, 5) == pytest.approx(1.39, abs=0.005)
    assert formulae.speed_up(0.279, 5, 0.93) == pytest.approx(0.246, abs=0.005)
    assert formulae.break_even_acceptance(5, 0.93) > 0.95
    assert formulae.free_tokens(470, 97, 14) == pytest.approx(26.6, abs=0.1)
    assert formulae.prefill_share(80.6, 19.4) == pytest.approx(0.806)


@given(st.floats(0, 0.99), st.integers(0, 12))
def test_expected_tokens_equal_the_sum(acceptance: float, drafted: int) -> None:
    # The k-th draft token comes through with a^k, and the target adds one of its own.
    assert formulae.expected_tokens(acceptance, drafted) == pytest.approx(
        1 + sum(acceptance**k for k in range(1, drafted + 1))
    )


@given(st.integers(1, 16), st.floats(0, 1.5))
def test_break_even_has_speed_up_one(drafted: int, cost: float) -> None:
    found = formulae.break_even_acceptance(drafted, cost)
    if found is None:
        assert cost >= 1 - 1e-9
    elif found > 1e-9:
        assert formulae.speed_up(found, drafted, cost) == pytest.approx(1, abs=1e-6)
