"""Nodes live, caption and publish diagnostics after invalid messages."""

from __future__ import annotations

import pytest
from crossspec_lab.trials.fuzz_messages import NODES, fuzz


@pytest.mark.nightly
@pytest.mark.realtime
def test_nodes_survive_invalid_messages() -> None:
    figures = fuzz(count=300, seed=1)
    assert figures["messages"] == 300 and figures["ended"] == {}
    assert figures["captioned"] == figures["diagnosed"] == figures["valid_windows"] == 1
    targets = {
        "/camera/image_raw",
        "/captioner/ask",
        "/synchronizer/window_closed",
        "/player/report",
    }
    assert targets | {"/dv_camera/get_parameters"} <= set(figures["targets"])
    assert set(figures["failed_callbacks"]) == set(NODES)
    # So few messages show nothing of growth.
    assert set(figures["missed_bars"]) <= {"growth"}
