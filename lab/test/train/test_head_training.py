"""The command that trains heads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from crossspec_lab.baselines.retrieval import taught_tokens
from crossspec_lab.train.pairs import PairShards
from crossspec_lab.world.dataset import UNSEEN
from crossspec_lab.world.phrases import caption

from crossspec_ros.cli import main
from crossspec_ros.models.loading import load_pair
from crossspec_ros.paths import share_dir, tiny_models


@pytest.mark.nightly
def test_a_head_learns_first_what_the_target_was_taught(tmp_path: Path) -> None:
    out, work = tmp_path / "heads", tmp_path / "work"
    folders = ["--out", str(out), "--work", str(work)]
    train = ["train", "heads", "massv", "--taught", "12", "--windows", "10", "--steps", "2", *folders]
    assert main(train) == 0
    taught, own = PairShards(work / "taught"), PairShards(work / "pairs")
    target = load_pair(tiny_models()).target
    assert (len(taught), len(own)) == (12, 10)
    assert taught.batch([11]).tokens[0].tolist() == list(taught_tokens(target, caption, UNSEEN + 11))
    assert not taught.batch([11]).states.numel() and own.batch([0]).states.numel()
    # Its own captions are of windows that were not among the taught.
    frames = np.load(work / "frames.npy", mmap_mode="r")
    units = [target.unit(one, i).embeds for i, one in enumerate(target.encode(np.array(frames[12])))]
    assert torch.allclose(own.batch([0]).frames[0], torch.cat(units).detach(), atol=0.05)
    assert json.loads((out / "massv" / "config.json").read_text())["training"]["taught"] == 12
    bag = str(share_dir() / "rosbags" / "synthetic_drive")
    assert main([*train, "--recordings", bag]) == 2
