"""The soak on a small scale counts the events and windows that were sent."""

from __future__ import annotations

import os
from importlib.metadata import distributions

import pytest
from crossspec_lab.trials.soak import soak
from crossspec_lab.trials.soak_processes import KILLED

PACKET_EVENTS = 3200
"""Of ten milliseconds at this rate."""
JAZZY = os.environ.get("ROS_DISTRO") == "jazzy" or "ros-jazzy-rclpy" in {d.name for d in distributions()}


@pytest.mark.realtime
@pytest.mark.nightly
def test_soak_counts_every_event_and_window() -> None:
    figures = soak(seconds=6.0, rate=0.2)
    windows, sent = figures["windows"], figures["sent"]
    assert windows["closed"] >= sent["windows"] >= 4 and windows["unreported"] == 0
    assert 0 < sent["captioned"] <= sent["windows"] and windows["captioned"] > 0
    # Jazzy's Fast DDS may lose some packets that are sent best effort; then each is noticed. Messages are
    # stamped on arrival, so the first and the last window may hold some milliseconds more or less.
    lost = sent["lost_packets"] * PACKET_EVENTS
    assert abs(sent["events"] - sent["counted_events"] - lost) <= 5 * PACKET_EVENTS
    assert sent["events"] > 0 and sent["lost_packets"] <= (20 if JAZZY else 0)
    assert figures["reconnect_s"] > 0 and figures["again_s"][KILLED] is not None
    assert set(figures["rss"]) >= {"synchronizer", "captioner", "dv_camera"}
