"""A load that any machine bears is counted to the last event, and what was measured can have been so."""

from __future__ import annotations

import pytest

from crossspec_ros.bench.events_ros import highest, measure

pytestmark = pytest.mark.realtime


def test_a_light_load_is_borne_without_loss():
    (row,) = rows = measure([0.5], seconds=3.0)
    packets = round(3e6 / 1024)
    assert row["events_sent"] == row["events_counted"] == packets * 512
    assert row["lost_packets"] == 0 and row["holds"] and highest(rows) == 0.5
    assert 0.4 < row["sent_mev_s"] <= 0.51
    # A slice is drawn 5 ms after its end, once a later packet has come.
    assert 5.0 < row["event_image_ms"]["median"] <= row["event_image_ms"]["max"] < 500.0
    assert 0.0 < row["cpu_share"] < 2.0 and 50.0 < row["peak_mb"] < 2000.0


def test_the_highest_rate_is_the_last_before_the_first_that_does_not_hold():
    holding = {1: True, 10: False, 5: True, 20: True}
    rows = [{"rate_mev_s": rate, "holds": holds} for rate, holds in holding.items()]
    assert highest(rows) == 5
    assert highest([{"rate_mev_s": 1, "holds": False}]) == 0
