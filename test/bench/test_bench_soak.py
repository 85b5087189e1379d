"""The soak on a small scale: what it counts is what was sent, and slow inference shows as skipped windows."""

from __future__ import annotations

import pytest

from crossspec_ros.bench.soak import soak


@pytest.mark.parametrize("inference_s", [0.0, 1.5])
def test_all_is_counted_and_every_window_is_captioned_or_told_as_skipped(inference_s):
    figures = soak(seconds=11.0, rate=0.2, inference_s=inference_s)
    windows, events = figures["windows"], figures["events"]
    assert windows["sent"] >= 4 and windows["closed"] == windows["sent"] and windows["missed"] == 0
    assert windows["captioned"] + windows["skipped"] == windows["sent"]
    assert (windows["skipped"] > 0) == (inference_s > 1)
    assert events["counted"] == events["sent"] > 0 and figures["lost_packets"] == 0
    assert figures["reported_after_reconnect"]
    assert figures["caption_ms"]["median"] >= 1e3 * inference_s
    assert set(figures["rss"]) >= {"synchronizer", "captioner", "dv_camera"}
