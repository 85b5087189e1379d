"""`crossspec train heads` trains and resumes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from crossspec_lab.heads.head import Sizes
from crossspec_lab.heads.head_files import load_head
from crossspec_lab.train.head_fit import fit_head
from crossspec_lab.train.head_training import new_head, recorded
from crossspec_lab.train.pairs import PairShards
from safetensors.torch import save_file

from crossspec_ros.cli import main, make_parser
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import share_dir

BAG = str(share_dir() / "rosbags" / "synthetic_drive")


def test_resumed_training_equals_an_uninterrupted_one(pair: ModelPair, tmp_path: Path) -> None:
    sizes = Sizes.of(pair.target, pair.draft)
    # Equal windows, so that each step lowers the loss and the last checkpoint is the best.
    numbers = {"tokens": torch.arange(6), "question": torch.arange(5), "units": torch.tensor([4])}
    torch.manual_seed(0)
    states = {"states": torch.randn(10, 192), "taps": torch.randn(10, 576), "frames": torch.randn(4, 192)}
    for i in range(12):
        save_file(numbers | states, tmp_path / f"window-{i:06d}.safetensors")

    def train(folder: str, steps: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(7)
        head = new_head("massv", sizes)
        head.load(pair.target)
        done: list[int] = []
        fit_head(head, PairShards(tmp_path), steps, tmp_path / folder, done.append)
        assert done[-1] == steps and len(done) == (2 if folder == "b" else 4)
        return head.state_dict()

    uninterrupted, _, resumed = train("a", 4), train("b", 2), train("b", 4)
    assert all(torch.allclose(one, resumed[name], atol=1e-6) for name, one in uninterrupted.items())


@pytest.mark.nightly
def test_command_writes_a_head(pair: ModelPair, tmp_path: Path) -> None:
    folders = ["--out", str(tmp_path), "--work", str(tmp_path / "work")]
    assert main(["train", "heads", "massv", "--windows", "10", "--steps", "2", *folders]) == 0
    assert load_head(tmp_path / "massv", pair.target, pair.draft).name == "massv"


def test_recordings_give_their_windows_with_frames(pair: ModelPair) -> None:
    args = make_parser().parse_args(["train", "heads", "massv", "--recordings", BAG])
    found = list(recorded(pair, args))
    assert len(found) > 1
    assert all(len(window.frames) and len(window.event_images) for window in found)
