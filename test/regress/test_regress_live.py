"""Tier 2 on the real nodes: what they report makes a baseline, against which a slower program is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crossspec_ros.environment import ros_environment
from crossspec_ros.paths import share_dir
from crossspec_ros.regress.baseline import Baseline, Tolerances, compare_live
from crossspec_ros.regress.golden import Setup, golden_folder, read_golden
from crossspec_ros.regress.live_replay import ReplayError, replay

pytestmark = pytest.mark.nodes

BAG = share_dir() / "rosbags" / "synthetic_drive"


def test_the_nodes_of_the_sample_bag_are_as_their_baseline_and_a_slower_program_is_named(tmp_path):
    setup = Setup(BAG)
    golden = read_golden(golden_folder(BAG) / "windows.json", setup)
    reports = replay(setup, 4.0, tmp_path, ros_environment())
    # How many are skipped depends on what else the machine does.
    assert reports and reports.keys() <= {record.end_ns for record in golden.windows}
    faster = {
        end: replace(w, total_ms=w.total_ms / 1.3, first_token_ms=w.first_token_ms / 1.3)
        for end, w in reports.items()
    }
    for before, expected in (
        (reports, {}),
        (faster, {"latency to the caption": "1.30x", "latency to the first token": "1.30x"}),
    ):
        checks = compare_live(golden, Baseline(4.0, [before]), [reports], Tolerances())
        differences = [difference for check in checks for difference in check.differences]
        assert {d.what: d.actual.split()[0] for d in differences} == expected


def test_nodes_that_cannot_go_on_are_told_with_their_last_words(tmp_path):
    setup = Setup(BAG)
    # Refused by the player; the captioner may still be loading.
    with pytest.raises(ReplayError, match=r"ended with code 2: .*rate is 0\.0, but it must be from 0\.01"):
        replay(setup, 0.0, tmp_path, ros_environment())
