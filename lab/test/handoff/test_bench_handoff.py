"""`crossspec bench handoff` reports captions from frames and from aligned features."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from crossspec_lab.handoff.network import Handoff, save_handoff

from crossspec_ros.cli import main
from crossspec_ros.drafting.heads.head import Sizes
from crossspec_ros.models.pair import ModelPair


@pytest.mark.nightly
def test_untrained_handoff_is_refused(pair: ModelPair, tmp_path: Path) -> None:
    torch.manual_seed(0)
    save_handoff(Handoff(Sizes.of(pair.target, pair.draft), 8, 17, 5, 17), tmp_path / "handoff", {})
    out = tmp_path / "figures.json"
    command = ["bench", "handoff", "--windows", "1", "--handoff", str(tmp_path / "handoff")]
    assert main([*command, "--json", str(out)]) == 0
    captions = json.loads(out.read_text())["captions"]
    assert captions["true frames"]["right"] > captions["aligned features"]["right"]
    assert captions["predicted"] == captions["probed"] == captions["true frames"]
