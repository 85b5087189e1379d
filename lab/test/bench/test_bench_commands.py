"""`crossspec bench captions`, `figure` and `lossless` on the shipped pair."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from crossspec_lab.bench import figure, lossless
from crossspec_lab.world.questions import ANSWERS
from PIL import Image

from crossspec_ros.cli import main
from crossspec_ros.engine import accept as accept_module
from crossspec_ros.engine.accept import greedy_path
from crossspec_ros.paths import tiny_models


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


@pytest.mark.nightly
def test_figure_writes_a_moving_gif(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure, "_OPEN_STEP_MS", 500)
    monkeypatch.setattr(figure, "_MAX_STEPS", 2)
    out = tmp_path / "drive.gif"
    assert main(["bench", "figure", str(out), "--seconds", "1"]) == 0
    with Image.open(out) as picture:
        assert getattr(picture, "n_frames", 1) >= 5


@pytest.mark.nightly
def test_lossless_decoders_give_the_targets_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lossless, "QUESTIONS", lossless.QUESTIONS[:2])
    out = tmp_path / "lossless.json"
    assert main(["bench", "lossless", "--windows", "1", "--json", str(out)]) == 0
    figures = json.loads(out.read_text())
    modes = {name: row for name, row in figures.items() if "equal" in row}
    assert {(row["equal"], row["total"]) for row in modes.values()} == {(2, 2)}
    assert {"adversary", "caption memory", "all, measured policy", "generate, assisted"} <= set(modes)
    # Where llama.cpp is installed.
    for rows in figures.get("llama.cpp", {}).values():
        assert {(row["equal"], row["total"]) for row in rows.values()} == {(2, 2)} and "adversary" in rows
    assert {row["answers"] for row in figures["bfloat16"].values()} == {2}
    assert "identical to transformers" in capsys.readouterr().out


@pytest.mark.nightly
def test_lossless_fails_for_a_wrong_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    def credulous(tree, choices):  # type: ignore[no-untyped-def]
        path, following = greedy_path(tree, choices)
        return ((0,), choices[1]) if len(tree) and not path else (path, following)

    monkeypatch.setattr(accept_module, "greedy_path", credulous)
    ours = lossless._ours
    monkeypatch.setattr(lossless, "_ours", lambda *args: {"adversary": ours(*args)["adversary"]})
    monkeypatch.setattr(lossless, "QUESTIONS", lossless.QUESTIONS[:1])
    # For a named target, only our decoders are compared with transformers.
    target = str(tiny_models() / "target")
    assert main(["bench", "lossless", "--windows", "1", "--target", target]) == 1
