"""`crossspec bench handoff` runs on the shipped pair and reports what it promises."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from crossspec_lab.handoff.measure import auc
from crossspec_lab.handoff.network import Handoff, save_handoff

from crossspec_ros.cli import main
from crossspec_ros.drafting.heads.head import Sizes
from crossspec_ros.models.pair import ModelPair


@pytest.mark.nightly
def test_the_figures_of_a_window(pair: ModelPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    save_handoff(Handoff(Sizes.of(pair.target, pair.draft), 8, 17, 5, 17), tmp_path / "handoff", {})
    out = tmp_path / "figures.json"
    command = ["bench", "handoff", "--windows", "1", "--handoff", str(tmp_path / "handoff")]
    assert main([*command, "--json", str(out)]) == 0
    figures = json.loads(out.read_text())
    captions = figures["captions"]
    assert captions["true frames"]["right"] > captions["aligned features"]["right"]
    # What an untrained one says is refused.
    assert captions["predicted"] == captions["probed"] == captions["true frames"]
    assert figures["acceptance"]["0.80"]["true cosine accepts"] == 0
    assert figures["as_draft"]["nothing"]["tokens a pass"] == 1
    assert "by scene" in capsys.readouterr().out


def test_auc_is_the_share_of_pairs_in_the_right_order() -> None:
    assert auc(np.array([0.1, 0.4, 0.4, 0.8]), np.array([False, False, True, True])) == 0.875
    assert auc(np.array([0.1, 0.4]), np.array([True, True])) is None
