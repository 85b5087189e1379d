"""The soak on a small scale counts the events and windows that were sent."""

from __future__ import annotations

import os
from importlib.metadata import distributions
from types import SimpleNamespace

import pytest
from crossspec_lab.trials.soak import _outcomes, soak
from crossspec_lab.trials.soak_processes import KILLED

PACKET_EVENTS = 3200
"""Of ten milliseconds at this rate."""
JAZZY = os.environ.get("ROS_DISTRO") == "jazzy" or "ros-jazzy-rclpy" in {d.name for d in distributions()}
MOST_LOST = 20 if JAZZY else 0


def report(source="target"):
    return SimpleNamespace(caption=SimpleNamespace(source=source), events=9, missing_images=0)


def test_every_closed_window_has_an_outcome():
    reports = {float(s): report() for s in range(8) if s not in (3, 5)} | {3.0: report(source="")}
    assert _outcomes(range(8), reports) == {"captioned": 6, "reported_otherwise": 1, "unreported": 1}


@pytest.mark.realtime
@pytest.mark.nightly
def test_soak_counts_every_event_and_window():
    figures = soak(seconds=6.0, rate=0.2)
    windows, events = figures["windows"], figures["events"]
    assert windows["sent"] >= 4 and windows["closed"] == windows["sent"] and windows["missed"] == 0
    assert windows["captioned"] + windows["skipped"] == windows["sent"]
    assert windows["captioned"] > 0
    # Jazzy's Fast DDS may lose some packets that are sent best effort; then each is noticed. Messages are
    # stamped on arrival, so the first and the last window may hold some milliseconds more or less.
    lost = figures["lost_packets"] * PACKET_EVENTS
    assert abs(events["sent"] - events["counted"] - lost) <= 5 * PACKET_EVENTS
    assert events["sent"] > 0 and figures["lost_packets"] <= MOST_LOST
    assert figures["reconnect_s"] > 0 and figures["again_s"][KILLED] is not None
    assert set(figures["rss"]) >= {"synchronizer", "captioner", "dv_camera"}
