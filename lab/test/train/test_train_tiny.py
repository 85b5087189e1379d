"""The tiny models learn, and are stored as they are loaded."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from crossspec_lab.train import tiny
from crossspec_lab.train.caption_students import DraftStudent, TargetStudent
from crossspec_lab.train.outputs import write_model
from crossspec_lab.world.dataset import DrawnWindows, frame_window
from crossspec_lab.world.phrases import QUESTION

from crossspec_ros.models.base import Chunk
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import draft_architecture, target_architecture
from crossspec_ros.paths import share_dir, tiny_models


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.nightly
def test_training_lowers_the_loss_and_resumes(tmp_path: Path) -> None:
    args = argparse.Namespace(
        family="video_llava", only="draft", shrink=400, work=tmp_path / "work", out=tmp_path / "out"
    )
    assert tiny.run(args) == 0
    (checkpoint,) = (args.work / "draft").glob("checkpoint-*")
    log = json.loads((checkpoint / "trainer_state.json").read_text())["log_history"]
    losses = [entry["loss"] for entry in log if "loss" in entry]
    assert losses[-1] < losses[0]
    weights = (args.out / "draft" / "model.safetensors").read_bytes()
    assert tiny.run(args) == 0
    assert (args.out / "draft" / "model.safetensors").read_bytes() == weights


@torch.inference_mode()
def test_qwen_student_matches_the_streamed_target() -> None:
    student = TargetStudent(share_dir() / "models" / "tiny_qwen3_vl").eval()
    target = student.target
    images = frame_window(3)[None]
    captions = torch.tensor([[5, 6, 7]])
    logits = student.logits(student.features(torch.from_numpy(images)), captions)[0]
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
        assert [windows[i]["seeds"] for i in range(len(windows))] == [3, 4, 5]
        assert windows[1]["images"].tolist() == [[4, 4], [4, 4]]
    assert seeds == [3, 4, 5]
