"""Training a hand-off: an interrupted run resumes to the very weights, the target's answers are its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from crossspec_lab.handoff import training as training
from crossspec_lab.handoff.network import likeness
from plain_target import generated

from crossspec_ros.cli import main
from crossspec_ros.drafting.heads.head import IGNORED
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.windows.window import Window


@pytest.fixture(scope="module")
def lessons(pair: ModelPair, windows: list[Window]) -> dict[str, torch.Tensor]:
    frames, events = zip(*((window.frames, window.event_images) for window in windows), strict=True)
    return training.features(pair, np.stack(frames), np.stack(events))


def test_the_lessons_are_what_both_models_make_of_a_window(
    pair: ModelPair, windows: list[Window], lessons: dict[str, torch.Tensor]
) -> None:
    assert lessons["true"].shape == (4, 8, 17, 192)
    assert lessons["early"].shape == (4, 4 + 17, 128) and lessons["whole"].shape == (4, 5 + 17, 128)
    # Of features in bfloat16, so not of every window.
    own = [tuple(row[row != IGNORED].tolist()) for row in lessons["answers"]]
    assert sum(said == generated(pair, window) for said, window in zip(own, windows, strict=True)) >= 3


def test_the_targets_own_features_make_its_answers_likely(
    pair: ModelPair, lessons: dict[str, torch.Tensor]
) -> None:
    true, answers = lessons["true"].float(), lessons["answers"]
    with torch.inference_mode():
        assert training.spoken_loss(pair.target, true, answers) < 0.2
        assert training.spoken_loss(pair.target, true.flip(0), answers) > 0.5


@pytest.mark.nightly
def test_an_interrupted_training_goes_on_to_the_same_weights(
    pair: ModelPair,
    lessons: dict[str, torch.Tensor],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(training, "_CHECKPOINT_EVERY", 2)
    monkeypatch.setattr(training, "_UNSEEN", 4)
    monkeypatch.setattr(training, "_SPOKEN", 1)
    many = {name: rows.repeat(2, *[1] * (rows.ndim - 1)) for name, rows in lessons.items()}
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    whole = training.fit(pair, many, 4, tmp_path / "whole")
    save = torch.save
    monkeypatch.setattr(
        torch, "save", lambda *args: (save(*args), args[1].replace(tmp_path / "saved"), 1 / 0)
    )
    with pytest.raises(ZeroDivisionError):
        training.fit(pair, many, 4, tmp_path / "cut")
    monkeypatch.setattr(torch, "save", save)
    (tmp_path / "saved").replace(tmp_path / "cut" / "checkpoint.pt")
    resumed = training.fit(pair, many, 4, tmp_path / "cut")
    for name, tensor in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], tensor), name
    with torch.no_grad():
        near = likeness(whole(many["early"]), many["true"]).mean()
        foreseen = whole.predicted(many["early"]).mean()
    assert near > 0 and float(foreseen) == pytest.approx(float(near), abs=0.1)


def test_too_few_windows_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "handoff", "--windows", "10", "--work", str(tmp_path)]) == 2
    assert "are too few" in capsys.readouterr().err
