"""`crossspec train heads` trains and resumes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from crossspec_lab.heads.head_files import load_head
from crossspec_lab.train.head_training import recorded

from crossspec_ros.cli import main, make_parser
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import share_dir

BAG = str(share_dir() / "rosbags" / "synthetic_drive")


@pytest.mark.nightly
def test_resumed_training_gives_the_same_head(pair: ModelPair, tmp_path: Path) -> None:
    def train(name: str, steps: int) -> dict[str, torch.Tensor]:
        folders = ["--out", str(tmp_path / name), "--work", str(tmp_path / name / "work")]
        assert main(["train", "heads", "massv", "--windows", "10", "--steps", str(steps), *folders]) == 0
        assert (
            json.loads((tmp_path / name / "massv" / "config.json").read_text())["training"]["windows"] == 10
        )
        return load_head(tmp_path / name / "massv", pair.target).state_dict()

    uninterrupted, _, resumed = train("a", 4), train("b", 2), train("b", 4)
    assert all(torch.allclose(one, resumed[name], atol=1e-3) for name, one in uninterrupted.items())


def test_recordings_give_their_windows_with_frames(pair: ModelPair) -> None:
    args = make_parser().parse_args(["train", "heads", "massv", "--recordings", BAG])
    found = list(recorded(pair, args))
    assert len(found) > 1
    assert all(len(window.frames) and len(window.event_images) for window in found)
