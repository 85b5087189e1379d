"""The formulae against the figures that were published, and against simulation."""

from __future__ import annotations

import pytest
from crossspec_lab.bench import formulae
from hypothesis import given
from hypothesis import strategies as st


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
