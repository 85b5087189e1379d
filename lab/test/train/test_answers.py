"""The tiny target learns to fill in forms and to answer; its vision tower stays as it is."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from crossspec_lab.train import answers
from crossspec_lab.train.answers import AnswerStudent
from crossspec_lab.train.training import Recipe
from crossspec_lab.world import dataset, questions
from crossspec_lab.world.phrases import caption

from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import target_architecture
from crossspec_ros.paths import tiny_models


@pytest.fixture(scope="module")
def student() -> AnswerStudent:
    torch.set_num_threads(1)
    return AnswerStudent(tiny_models() / "target")


def test_answers_and_form_values_are_learned(student: AnswerStudent) -> None:
    scene, tokenizer = dataset.scenes_of(dataset.HELD_OUT)[-2], student.target.tokenizer
    answers = student.answers(scene, np.random.default_rng(1))
    captioned, full, values, *standing = (
        tokenizer.decode([i for i, is_learned in zip(one.ids, one.learned, strict=True) if is_learned])
        for one in answers
    )
    truth = questions.truth(scene)
    assert captioned == f" {caption(scene)}" and json.loads(full) == truth
    form = json.loads("{" + tokenizer.decode(answers[2].ids).split("{", 1)[1])
    assert form.items() <= truth.items() and values == "".join(form.values())
    assert len(standing) == 3 and all(standing)


@torch.inference_mode()
def test_student_begins_as_the_captioning_target(student: AnswerStudent) -> None:
    seeds = range(dataset.HELD_OUT, dataset.HELD_OUT + 2)
    images = np.stack([dataset.frame_window(seed) for seed in seeds])
    rows = [student.answers(dataset.scenes_of(seed)[-2], np.random.default_rng(seed)) for seed in seeds]
    logits, wanted = student.logits(images, [row[:1] for row in rows])
    assert torch.equal(logits.argmax(-1), wanted)


@pytest.mark.nightly
def test_training_changes_all_but_the_tower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_RECIPE", Recipe(4, 4, 2, 4e-4, warmup_steps=1, held_out=2))
    args = argparse.Namespace(work=tmp_path / "work", out=tmp_path / "out", shrink=1)
    assert answers.run(args) == 0
    trained = target_architecture(args.out).load(Placement()).state_dict()
    before = target_architecture(tiny_models() / "target").load(Placement()).state_dict()
    changed = {name for name, tensor in before.items() if not torch.equal(tensor, trained[name])}
    assert changed and not any("video_tower" in name for name in changed)
