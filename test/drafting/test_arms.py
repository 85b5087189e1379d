"""The faster arm captions, with probes of the other one."""

from __future__ import annotations

import random

import pytest

from crossspec_ros.drafting.arms import PROBE_EVERY, Arms


@pytest.mark.parametrize("ratio", [0.5, 0.9, 1.2, 3.0])
def test_arms_reach_rate_of_faster_arm(ratio):
    arms, rng, total, windows = Arms(), random.Random(3), 0.0, 1600
    for _ in range(windows):
        speculates = arms.choose()
        seconds = (ratio if speculates else 1.0) * rng.uniform(0.97, 1.03)
        total += seconds
        arms.observe(speculates, seconds)
    best, worst = min(ratio, 1.0), max(ratio, 1.0)
    assert total / windows < best + (worst - best) / PROBE_EVERY + 0.05


def test_probes_find_faster_arm():
    arms = Arms()
    for slow in (True, False):
        chosen = []
        for _ in range(40 * PROBE_EVERY):
            chosen.append(arms.choose())
            arms.observe(chosen[-1], 2.0 if chosen[-1] == slow else 1.0)
        assert sum(one == slow for one in chosen[-10 * PROBE_EVERY :]) <= 10
