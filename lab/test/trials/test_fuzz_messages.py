"""Synchronizer and captioner live, caption and tell how they are after messages that nobody should send."""

from __future__ import annotations

import pytest
from crossspec_lab.trials.fuzz_messages import fuzz


@pytest.mark.nightly
@pytest.mark.realtime
def test_the_nodes_go_on() -> None:
    figures = fuzz(count=300, seed=1)
    assert figures["messages"] == 300 and figures["ended"] == {}
    assert figures["captioned"] == figures["diagnosed"] == figures["sound_windows"] == 1
    targets = {
        "/camera/image_raw",
        "/captioner/ask",
        "/synchronizer/window_closed",
        "/player/report",
    }
    assert targets | {"/dv_camera/get_parameters"} <= set(figures["targets"])
    assert set(figures["failed_callbacks"]) == {"synchronizer", "captioner", "dv_camera"}
    # So few messages tell nothing of growth.
    assert set(figures["missed_bars"]) <= {"growth"}
