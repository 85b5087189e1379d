"""Training: an interrupted run resumes to the very weights of an uninterrupted one, and it learns."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from crossspec_lab.train import fit as fit_module
from crossspec_lab.train import tiny
from crossspec_lab.train.fit import Labels, Recipe, fit
from crossspec_lab.train.models import DraftStudent, Student, TargetStudent
from crossspec_lab.train.tokenizer import train_tokenizers
from crossspec_lab.world.dataset import EVENT_IMAGES, FRAMES, SIDE, build, frame_window
from crossspec_lab.world.phrases import QUESTION
from tokenizers import Tokenizer

from crossspec_ros.models.base import Chunk
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import target_architecture

SEEDS = range(6)


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return dict(zip(("target", "draft"), train_tokenizers(drives=100), strict=True))


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr(fit_module, "_CHECKPOINT_EVERY", 2)


def images(name: str) -> np.ndarray:
    rng = np.random.default_rng(3)
    count = FRAMES if name == "target" else EVENT_IMAGES
    return rng.integers(0, 256, (len(SEEDS), count, SIDE, SIDE, 3), np.uint8)


def make(name: str, tokenizer: Tokenizer, folder: Path) -> Student:
    return DraftStudent(tokenizer) if name == "draft" else TargetStudent("video_llava", tokenizer, folder)


def train(name: str, tokenizer: Tokenizer, folder: Path, recipe: Recipe) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    folder.mkdir(exist_ok=True)
    student = make(name, tokenizer, folder)
    labels = Labels(SEEDS, tokenizer, student, name == "target")
    pictures = images(name)
    fit(student, pictures, labels, (pictures, labels), recipe, folder, lambda step, loss: None)
    return student.model.state_dict()


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "eyes"), [("target", 1), ("draft", 0)])
def test_an_interrupted_run_ends_where_an_uninterrupted_one_does(
    name: str, eyes: int, tokenizers: dict[str, Tokenizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = Recipe(eyes, 4, 2, 1e-3)
    whole = train(name, tokenizers[name], tmp_path / "whole", recipe)
    evaluate, calls = fit_module.evaluate, []

    def interrupt(*args: object) -> dict[str, float]:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return evaluate(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(fit_module, "evaluate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(name, tokenizers[name], tmp_path / "cut", recipe)
    resumed = train(name, tokenizers[name], tmp_path / "cut", recipe)
    assert all(torch.equal(whole[key], resumed[key]) for key in whole)
    steps = [json.loads(line)["step"] for line in (tmp_path / "cut" / "curve.jsonl").read_text().splitlines()]
    assert steps == [2, 4]


@pytest.mark.nightly
def test_a_target_of_another_family_is_saved_as_it_was_trained(tmp_path: Path) -> None:
    """Its captions begin where its prompt ends, and what it says is loaded as any checkpoint."""
    folders = {"work": tmp_path / "work", "out": tmp_path / "out"}
    args = argparse.Namespace(family="qwen3_vl", only="target", shrink=1000, **folders)
    assert tiny.run(args) == 0
    known = target_architecture(tmp_path / "out" / "qwen3_vl")
    target = known.model(known.load(Placement()), known.tokenizer())
    assert target.tokenizer.id_to_token(known.spec.eos_ids[0]) == "<|im_end|>"
    student = TargetStudent("qwen3_vl", target.tokenizer, tmp_path)
    assert student.begin == "" and known.spec == student.target.spec
    images = torch.from_numpy(np.stack([frame_window(3)]))
    student.model.load_state_dict(target.module.state_dict())
    said = torch.tensor([[5, 6, 7]])
    with torch.inference_mode():
        trained = student.logits(student.features(images), said)[0]
        read = [target.opening(), *map(target.unit, target.encode(images[0].numpy()), range(4))]
        whole = Chunk.joined([*read, target.closing(QUESTION), target.words((5, 6))])
        layers = list(whole.layers)
        hidden = target.body(
            inputs_embeds=whole.embeds[None],
            position_ids=whole.positions[:, None],
            deepstack_visual_embeds=layers,
            visual_pos_masks=torch.ones(1, len(whole), dtype=torch.bool),
        ).last_hidden_state[0]
    torch.testing.assert_close(trained, target.logits(hidden[-3:]), atol=1e-4, rtol=0)


def test_a_target_is_saved_in_the_layout_in_which_it_is_loaded(
    tokenizers: dict[str, Tokenizer], tmp_path: Path
) -> None:
    tokenizers["target"].save(str(tmp_path / "tokenizer.json"))
    student = TargetStudent("video_llava", tokenizers["target"], tmp_path)
    tiny._save(student.model, tmp_path, tmp_path / "out")
    known = target_architecture(tmp_path / "out")
    loaded = known.load(Placement()).state_dict()
    assert loaded.keys() == student.model.state_dict().keys()
    assert all(torch.equal(loaded[key], tensor.float()) for key, tensor in student.model.state_dict().items())
    # A save that fails, here at its last file, leaves the model that is there.
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    (tmp_path / "tokenizer.json").unlink()
    with torch.no_grad():
        next(student.model.parameters()).add_(1.0)
    with pytest.raises(FileNotFoundError):
        tiny._save(student.model, tmp_path, tmp_path / "out")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_windows_are_drawn_once_and_go_on_where_they_stopped(tmp_path: Path) -> None:
    drawn: list[int] = []

    def draw(seed: int) -> np.ndarray:
        drawn.append(seed)
        return np.full((2, 2), seed % 256, np.uint8)

    progress: list[int] = []
    first = build(tmp_path / "w.npy", draw, range(250), progress.append)
    assert progress == [200, 250] and first[249, 0, 0] == 249
    drawn.clear()
    assert np.array_equal(build(tmp_path / "w.npy", draw, range(250), progress.append), first)
    assert len(drawn) == 1
