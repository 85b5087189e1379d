"""`crossspec bench figure` draws measured windows, also such in which the RGB camera is blind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from crossspec_lab.compare import animation
from crossspec_lab.compare.bench_figure import headline
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


def test_the_headline_is_the_measured_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = json.loads(LATENCY.read_text())
    ratio = figures["modes"]["ours"]["last_frame_to_caption_ratio"]["median"]
    assert headline(figures).startswith(f"{ratio:.1f}x sooner than the target alone (")
    assert f"{figures['sooner_than']['generate, plain']['median']:.1f}x sooner than generate" in headline(
        figures
    )
    out = tmp_path / "headline.png"
    assert main(["bench", "figure", str(out), "--latency", str(LATENCY)]) == 0
    assert out.stat().st_size > 10_000
    assert main(["bench", "figure", str(out), "--latency", str(tmp_path / "no.json")]) == 2
    assert "is no file of crossspec bench latency --json" in capsys.readouterr().err
