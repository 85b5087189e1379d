"""Synchronizer and captioner live, caption and tell how they are after messages that nobody should send."""

from __future__ import annotations

import pytest

from crossspec_ros.fuzz.messages import fuzz

pytestmark = pytest.mark.realtime


def test_the_nodes_go_on() -> None:
    figures = fuzz(count=300, seed=1)
    assert figures["messages"] == 300 and figures["ended"] == {}
    assert figures["captioned"] == figures["diagnosed"] == figures["sound_windows"] == 1
    assert {"/camera/image_raw", "/captioner/ask", "/synchronizer/window_closed"} <= set(figures["targets"])
    assert set(figures["failed_callbacks"]) == {"synchronizer", "captioner"}
    # So few messages tell nothing of growth.
    assert set(figures["missed_bars"]) <= {"growth"}
