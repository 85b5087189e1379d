"""`crossspec bench figure` draws a drive or a file of latencies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from crossspec_lab.bench import animation, figure
from crossspec_lab.bench.columns import WALL
from PIL import Image

from crossspec_ros.cli import main


@pytest.mark.nightly
def test_figure_writes_a_moving_gif(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(animation, "_OPEN_STEP_MS", 500)
    monkeypatch.setattr(animation, "_MAX_STEPS", 2)
    out = tmp_path / "drive.gif"
    assert main(["bench", "figure", str(out), "--seconds", "1"]) == 0
    with Image.open(out) as picture:
        assert getattr(picture, "n_frames", 1) >= 5


def test_figure_draws_latencies(tmp_path: Path) -> None:
    out, file = tmp_path / "headline.png", tmp_path / "latency.json"
    rows = {name: {WALL: {"median": 20.0, "p10": 10.0, "p90": 30.0}} for name in figure.NAMES}
    file.write_text(json.dumps({"tables": [{"rows": rows}]}))
    assert main(["bench", "figure", str(out), "--latency", str(file)]) == 0
    assert out.stat().st_size > 10_000
    for other in (tmp_path / "no.json", out):
        assert main(["bench", "figure", str(out), "--latency", str(other)]) == 2
