"""The tiny models learn captions and answers, and are stored as they are loaded."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from crossspec_lab.train import answers, tiny
from crossspec_lab.train.answers import AnswerStudent
from crossspec_lab.train.caption_students import DraftStudent, TargetStudent
from crossspec_lab.train.training import Recipe, write_model
from crossspec_lab.world import questions
from crossspec_lab.world.dataset import HELD_OUT, DrawnWindows, frame_window, scenes_of
from crossspec_lab.world.phrases import QUESTION, caption

from crossspec_ros.models.base import Chunk
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import draft_architecture, target_architecture
from crossspec_ros.paths import share_dir, tiny_models


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def student() -> AnswerStudent:
    return AnswerStudent(tiny_models() / "target")


@pytest.mark.nightly
def test_training_lowers_the_loss_and_resumes(tmp_path: Path) -> None:
    args: Any = SimpleNamespace(
        family="video_llava", only="draft", shrink=400, work=tmp_path / "work", out=tmp_path / "out"
    )
    assert tiny.run(args) == 0
    (checkpoint,) = (args.work / "draft").glob("checkpoint-*")
    log = json.loads((checkpoint / "trainer_state.json").read_text())["log_history"]
    losses = [entry["loss"] for entry in log if "loss" in entry]
    assert losses[-1] < losses[0] and any("eval_loss" in entry for entry in log)
    weights = (args.out / "draft" / "model.safetensors").read_bytes()
    assert tiny.run(args) == 0
    assert (args.out / "draft" / "model.safetensors").read_bytes() == weights


@pytest.mark.nightly
def test_training_of_answers_changes_all_but_the_tower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_RECIPE", Recipe(4, 4, 2, 4e-4, warmup_steps=1, held_out=2))
    args: Any = SimpleNamespace(work=tmp_path / "work", out=tmp_path / "out", shrink=1)
    assert answers.run(args) == 0
    before, trained = (
        target_architecture(folder).load(Placement()).state_dict()
        for folder in (tiny_models() / "target", args.out)
    )
    changed = {name for name, tensor in before.items() if not torch.equal(tensor, trained[name])}
    assert changed and not any("video_tower" in name for name in changed)


@torch.inference_mode()
def test_qwen_student_matches_the_streamed_target() -> None:
    student = TargetStudent(share_dir() / "models" / "tiny_qwen3_vl").eval()
    target = student.target
    images = frame_window(3)[None]
    logits = student.logits(student.features(torch.from_numpy(images)), torch.tensor([[5, 6, 7]]))[0]
    read = [target.opening(), *map(target.unit, target.encode(images[0]), range(4))]
    chunk = Chunk.joined([*read, target.closing(QUESTION), target.words((5, 6))])
    assert student.begin == "" and chunk.layers is not None
    hidden = target.body(
        inputs_embeds=chunk.embeds[None],
        position_ids=chunk.positions[:, None],
        deepstack_visual_embeds=list(chunk.layers),
        visual_pos_masks=torch.ones(1, len(chunk), dtype=torch.bool),
    ).last_hidden_state[0]
    torch.testing.assert_close(logits, target.logits(hidden[-3:]), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["target", "draft"])
def test_written_model_loads_unchanged(name: str, tmp_path: Path) -> None:
    source = tiny_models() / name
    student = (TargetStudent if name == "target" else DraftStudent)(source)
    write_model(student.module, source, tmp_path)
    architecture = (target_architecture if name == "target" else draft_architecture)(tmp_path)
    loaded, trained = architecture.load(Placement()).state_dict(), student.module.state_dict()
    assert loaded.keys() == trained.keys()
    assert all(torch.equal(loaded[key], tensor.float()) for key, tensor in trained.items())


def test_windows_are_drawn_once(tmp_path: Path) -> None:
    seeds: list[int] = []

    def draw(seed: int) -> np.ndarray:
        seeds.append(seed)
        return np.full((2, 2), seed, np.uint8)

    for _ in range(2):
        windows = DrawnWindows(tmp_path, draw, range(3, 6))
        assert [(one["seeds"], one["images"][1, 1]) for one in map(windows.__getitem__, range(3))] == [
            (3, 3), (4, 4), (5, 5),
        ]  # fmt: skip
    assert seeds == [3, 4, 5]


def test_answers_and_form_values_are_learned(student: AnswerStudent) -> None:
    scene, tokenizer = scenes_of(HELD_OUT)[-2], student.target.tokenizer
    rows = student.answers(scene, np.random.default_rng(1))
    captioned, full, values, *standing = (
        tokenizer.decode([i for i, is_learned in zip(one.ids, one.learned, strict=True) if is_learned])
        for one in rows
    )
    truth = questions.truth(scene)
    assert captioned == f" {caption(scene)}" and json.loads(full) == truth
    form = json.loads("{" + tokenizer.decode(rows[2].ids).split("{", 1)[1])
    assert form.items() <= truth.items() and values == "".join(form.values())
    assert len(standing) == 3 and all(standing)


@torch.inference_mode()
def test_answer_student_begins_as_the_captioning_target(student: AnswerStudent) -> None:
    seeds = range(HELD_OUT, HELD_OUT + 2)
    images = np.stack([frame_window(seed) for seed in seeds])
    rows = [student.answers(scenes_of(seed)[-2], np.random.default_rng(seed)) for seed in seeds]
    logits, wanted = student.logits(images, [row[:1] for row in rows])
    assert torch.equal(logits.argmax(-1), wanted)
