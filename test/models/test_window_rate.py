"""Windows a second follow from a device's speed and a target's sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import target_architecture
from crossspec_ros.models.window_rate import CAPTION_TOKENS, Pace, Speed, estimated_pace, measured_speed
from crossspec_ros.paths import tiny_models

PACE = Pace(frames=8, frames_per_unit=1, unit_s=0.2, prompt_s=0.1, token_s=0.05, tree_s=0.0)


def test_as_many_frames_as_a_second_has_room_for() -> None:
    report = PACE.report()
    assert report["windows_per_s_alone"] == pytest.approx(1 / (1.7 + 0.05 * CAPTION_TOKENS))
    assert report["windows_per_s"] == pytest.approx(1 / 1.7)
    assert report["frames_for_1_hz"] == 4 and report["share_before_first_token"] == 1
    assert replace(PACE, unit_s=0.1).report()["frames_for_1_hz"] == 8
    # A pair that lacks a frame takes as long as a whole one.
    assert replace(PACE, frames_per_unit=2, unit_s=0.5).report()["frames_for_1_hz"] == 2
    # A tree that costs more than its tokens one by one is not verified.
    dear = replace(PACE, tree_s=9.0).report()
    assert dear["windows_per_s"] == dear["windows_per_s_alone"]
    assert replace(PACE, prompt_s=1.0).report()["frames_for_1_hz"] is None


def test_a_device_twice_as_quick_takes_half_the_time() -> None:
    target = target_architecture(tiny_models() / "target")
    slow, quick = (
        estimated_pace(target, target.skeleton(), Placement(), Speed(n * 1e9, n * 1e8)) for n in (1, 2)
    )
    assert slow.alone_s() == pytest.approx(2 * quick.alone_s())
    assert slow.token_s > slow.tree_s / 32 > 0


def test_the_speed_of_this_machine() -> None:
    speed = measured_speed("cpu", torch.float32)
    # A number of four bytes takes two operations, and products of matrices use each number often.
    assert 0 < speed.bytes_per_s / 2 < speed.flops
