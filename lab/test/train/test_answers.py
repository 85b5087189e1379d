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
from crossspec_lab.world import dataset, questions
from crossspec_lab.world.phrases import caption

from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import target_architecture
from crossspec_ros.paths import tiny_models


@pytest.fixture(scope="module")
def student() -> AnswerStudent:
    torch.set_num_threads(1)
    return AnswerStudent(tiny_models() / "target")


def test_what_is_learnt_is_the_answer_and_of_a_form_its_values(student: AnswerStudent) -> None:
    scene, tokenizer = dataset.scenes_of(dataset.HELD_OUT)[-2], student.target.tokenizer
    kinds = student.told(scene, np.random.default_rng(1))
    learnt = {
        kind: [
            tokenizer.decode([i for i, is_learnt in zip(one.ids, one.learnt, strict=True) if is_learnt])
            for one in told
        ]
        for kind, told in kinds.items()
    }
    truth = questions.truth(scene)
    assert learnt["captions"] == [f" {caption(scene)}"]
    whole, values = learnt["forms"]
    assert json.loads(whole) == truth
    form = json.loads("{" + tokenizer.decode(kinds["forms"][1].ids).split("{", 1)[1])
    assert form.items() <= truth.items() and values == "".join(form.values())
    assert len(learnt["questions"]) == 3 and all(learnt["questions"])


@torch.inference_mode()
def test_the_student_begins_as_the_target_that_captions(student: AnswerStudent) -> None:
    seeds = range(dataset.HELD_OUT, dataset.HELD_OUT + 2)
    images = np.stack([dataset.frame_window(seed) for seed in seeds])
    assert answers._right(student, images, seeds) == {"captions": 1.0, "forms": 0.0, "questions": 0.0}


@pytest.mark.nightly
def test_training_changes_all_but_the_tower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_WINDOWS", 4), ("_HELD_OUT", 2), ("_BATCH", 2), ("_STEPS", 4), ("_POINT_EVERY", 2)):
        monkeypatch.setattr(answers, name, value)
    args = argparse.Namespace(work=tmp_path / "work", out=tmp_path / "out", shrink=1)
    assert answers.run(args) == 0
    points = [json.loads(line) for line in (args.work / "curve.jsonl").read_text().splitlines()]
    assert [point["step"] for point in points] == [2, 4]
    trained = target_architecture(args.out).load(Placement()).state_dict()
    before = target_architecture(tiny_models() / "target").load(Placement()).state_dict()
    changed = {name for name, tensor in before.items() if not torch.equal(tensor, trained[name])}
    assert changed and not any("video_tower" in name for name in changed)
