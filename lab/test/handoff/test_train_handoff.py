"""Training of a hand-off brings its features nearer to the target's, and `bench handoff` measures it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from crossspec_lab.handoff import training
from crossspec_lab.handoff.network import Handoff, likeness, save_handoff

from crossspec_ros.cli import main
from crossspec_ros.drafting.heads.head import Sizes
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.windows.window import Window


@pytest.mark.nightly
def test_fit_learns_features_and_their_cosine(
    pair: ModelPair, windows: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("_UNSEEN", 4), ("_SPOKEN", 1)):
        monkeypatch.setattr(training, name, value)
    frames, events = zip(*((window.frames, window.event_images) for window in windows), strict=True)
    lessons = training.features(pair, np.stack(frames), np.stack(events))
    with torch.inference_mode():
        true, answers = lessons["true"].float(), lessons["answers"]
        assert training.spoken_loss(pair.target, true, answers) < 0.2
        assert training.spoken_loss(pair.target, true.flip(0), answers) > 0.5
    handoff = training.fit(pair, lessons, 4)
    with torch.no_grad():
        near = likeness(handoff(lessons["early"]), lessons["true"]).mean()
        predicted = handoff.predicted(lessons["early"]).mean()
    assert near > 0 and float(predicted) == pytest.approx(float(near), abs=0.1)


def test_too_few_windows_are_refused(tmp_path: Path) -> None:
    assert main(["train", "handoff", "--windows", "10", "--work", str(tmp_path)]) == 2


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
