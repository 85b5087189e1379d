"""`crossspec bench captions` measures the shipped pair."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from crossspec_lab.world.questions import ANSWERS

from crossspec_ros.cli import main


@pytest.mark.nightly
def test_captions_command_writes_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "captions", "--windows", "3", "--json", str(tmp_path / "figures.json")]) == 0
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["windows"] == 3
    assert figures["target_attributes_right"] > 0.85
    assert figures["draft_token_acceptance"] > 0.5
    assert 0 < figures["bits_a_token"] < 1 and figures["captions_seen_before"] == 0
    assert set(figures["answers_right"]) == set(ANSWERS)
    assert "needs_color" in capsys.readouterr().out
