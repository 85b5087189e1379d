"""`crossspec bench figure` draws measured windows, also such in which the RGB camera is blind."""

from __future__ import annotations

from pathlib import Path

import pytest
from crossspec_lab.bench import animation
from PIL import Image

from crossspec_ros.cli import main

LATENCY = Path(__file__).resolve().parents[3] / "docs" / "benchmarks" / "latency.json"


@pytest.mark.nightly
def test_a_gif_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(animation, "_OPEN_STEP_MS", 500)
    monkeypatch.setattr(animation, "_MAX_STEPS", 2)
    out = tmp_path / "drive.gif"
    assert main(["bench", "figure", str(out), "--seconds", "1"]) == 0
    with Image.open(out) as picture:
        assert getattr(picture, "n_frames", 1) >= 5


def test_latencies_are_drawn(tmp_path: Path) -> None:
    out = tmp_path / "headline.png"
    assert main(["bench", "figure", str(out), "--latency", str(LATENCY)]) == 0
    assert out.stat().st_size > 10_000
    assert main(["bench", "figure", str(out), "--latency", str(tmp_path / "no.json")]) == 2
