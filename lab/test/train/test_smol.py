"""A language model learns to read frames, is stored as its changes, and is complete again."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from crossspec_lab.train import smol, smol_base
from crossspec_lab.train.shown_words import TOKENS, ShownWords, shown
from crossspec_lab.train.smol_student import LAYERS, SmolStudent, copy_tiny_tower
from crossspec_lab.world.dataset import FRAMES, frame_times, frame_window, scenes_of
from crossspec_lab.world.phrases import QUESTION
from make_smol import complete
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import target_architecture
from crossspec_ros.paths import share_dir, tiny_models

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def small_base() -> tuple[LlamaForCausalLM, SimpleNamespace]:
    """Return a small base with random weights, and its tokenizer."""
    bytes_ = pre_tokenizers.ByteLevel
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = bytes_(add_prefix_space=False), decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    options: dict[str, Any] = {"initial_alphabet": bytes_.alphabet(), "show_progress": False}
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, **options)
    tokenizer.train_from_iterator([QUESTION], trainer)
    options = {"bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 2048}
    count = tokenizer.get_vocab_size()
    config = LlamaConfig(**SIZES, vocab_size=count, tie_word_embeddings=True, **options)
    torch.manual_seed(0)
    return LlamaForCausalLM(config), SimpleNamespace(backend_tokenizer=tokenizer)


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Replace the base by a small one, and the shipped checkpoint by one of that base."""
    torch.set_num_threads(1)
    monkeypatch.setattr(smol_base, "base_model", small_base)
    monkeypatch.setattr(smol, "share_dir", lambda: tmp_path / "share")
    source = tmp_path / "share" / "models" / "smol"
    shutil.copytree(share_dir() / "models" / "smol", source, ignore=shutil.ignore_patterns("heads", "*.png"))
    base = small_base()[0].config
    shift = base.vocab_size - 49_152
    tokens = json.loads((source / "added_tokens.json").read_text())
    (source / "added_tokens.json").write_text(json.dumps({name: i + shift for name, i in tokens.items()}))
    config = json.loads((source / "config.json").read_text())
    config["image_token_id"] += shift
    end = base.vocab_size + len(tokens) - 1
    more = {"head_dim": 16, "rms_norm_eps": base.rms_norm_eps, "vocab_size": end + 1, "eos_token_id": end}
    config["text_config"] |= SIZES | more
    (source / "config.json").write_text(json.dumps(config))
    (source / "generation_config.json").write_text(json.dumps({"eos_token_id": end, "bos_token_id": 1}))
    return source


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.stack([frame_window(seed) for seed in range(2)])


@torch.inference_mode()
def test_stored_changes_complete_to_the_student(source: Path, images: np.ndarray, tmp_path: Path) -> None:
    student, stored = SmolStudent(source, "cpu").eval(), tmp_path / "stored"
    for parameter in student.parameters():
        parameter.copy_((parameter + 0.02 * torch.randn_like(parameter)).bfloat16().float())
    student.save(stored)
    assert {file.name for file in stored.iterdir()} >= {smol_base.CONFIG, smol_base.WEIGHTS, "config.json"}
    complete(stored)
    architecture = target_architecture(stored)
    target = architecture.model(architecture.load(Placement()), architecture.tokenizer())
    assert target.prompt_ids(QUESTION) == student.target.prompt_ids(QUESTION)
    units = [target.unit(one, i) for i, one in enumerate(target.encode(images[0]))]
    rows = [target.opening(), *units, target.closing(QUESTION)]
    hidden = target.body(inputs_embeds=torch.cat([row.embeds for row in rows])[None]).last_hidden_state
    ours, _ = student.read(student.features(images[:1]), [[(QUESTION, "x")]])
    words = torch.cat([student.words, student.rows])
    assert int(target.logits(hidden[0, -1]).argmax()) == int((ours[0] @ words.T).argmax())


@torch.inference_mode()
def test_tower_begins_as_the_tiny_targets(source: Path, images: np.ndarray) -> None:
    student, folder = SmolStudent(source, "cpu").eval(), tiny_models() / "target"
    architecture = target_architecture(folder)
    tiny = architecture.model(architecture.load(Placement()), architecture.tokenizer())
    # Both see the same squares.
    frames = images[0][:, :, 10:74]
    pixels = student.target.pixels(frames)
    copy_tiny_tower(student.tower, folder, pixels)
    theirs = tiny.module.model.video_tower(tiny.pixels(frames), output_hidden_states=True)
    ours = student.tower(pixels, output_hidden_states=True)
    states = ours.hidden_states[LAYERS], theirs.hidden_states[LAYERS][:, 1:]
    assert torch.cosine_similarity(*(one.flatten() for one in states), 0) > 0.8


@pytest.mark.nightly
def test_training_writes_a_checkpoint(source: Path, tmp_path: Path) -> None:
    args: Any = SimpleNamespace(work=tmp_path / "work", out=tmp_path / "out", shrink=500, device="cpu")
    assert smol.run(args) == 0
    assert [*(args.work / "tower").glob("checkpoint-*")] and [*(args.work / "captions").glob("checkpoint-*")]
    assert {file.name for file in args.out.iterdir()} >= {smol_base.CONFIG, smol_base.WEIGHTS}


def test_added_tokens_have_the_published_ids(shared: Path) -> None:
    published = json.loads((shared / "data/checkpoints/smolvlm2_500m/added_tokens.json").read_text())
    assert json.loads((share_dir() / "models/smol/added_tokens.json").read_text()) == published


def test_loss_is_least_at_the_shown_words() -> None:
    words = torch.randn(128, 16, generator=torch.Generator().manual_seed(0))
    # Letters are tokens.
    letters: Any = SimpleNamespace(encode=lambda text, **_: SimpleNamespace(ids=[*map(ord, text)]))
    learned, mean, rows = ShownWords(words, letters), words.mean(0), [3, 5]
    wanted = mean.repeat(len(rows), FRAMES, TOKENS, 1)
    for i, row in enumerate(rows):
        for j, second in enumerate(frame_times(row)):
            for k, token in enumerate(shown(scenes_of(row)[-2], second)):
                for name, weight in token.items():
                    wanted[i, j, k] += weight * (words[[*map(ord, f" {name}")]].mean(0) - mean)
    frames = [6, 1]
    least, blind, swapped = (
        float(learned(features[:, frames], rows, frames))
        for features in (wanted, mean.expand_as(wanted), wanted.flip(0))
    )
    assert 4 * least < min(blind, swapped)


def test_dashes_show_the_own_speed() -> None:
    for seed in range(40):
        scene = scenes_of(seed)[-2]
        numbers = [
            max(words := shown(scene, second)[14], key=words.__getitem__) for second in frame_times(seed)
        ]
        changes = sum(a != b for a, b in pairwise(numbers))
        assert changes == 0 if scene.ego == "still" else (3 <= changes <= 4) == (scene.ego == "slow"), numbers
