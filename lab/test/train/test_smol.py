"""A language model learns to read frames, is stored as its changes, and is complete again."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from crossspec_lab.train import smol, smol_base
from crossspec_lab.train.smol_student import SmolStudent
from crossspec_lab.train.tiny_tower import LAYERS, copy_tiny_tower
from crossspec_lab.world import dataset
from crossspec_lab.world.phrases import QUESTION
from make_smol import complete
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import target_architecture
from crossspec_ros.paths import share_dir, tiny_models


@pytest.fixture(autouse=True)
def share(base: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Replace the shipped checkpoint by one of the small base."""
    share, base = tmp_path / "share", smol_base.base_model()[0].config
    source = share / "models" / "smol"
    shutil.copytree(share_dir() / "models" / "smol", source, ignore=shutil.ignore_patterns("heads", "*.png"))
    shift = base.vocab_size - 49_152
    tokens = json.loads((source / "added_tokens.json").read_text())
    (source / "added_tokens.json").write_text(json.dumps({name: i + shift for name, i in tokens.items()}))
    config = json.loads((source / "config.json").read_text())
    config["image_token_id"] += shift
    sizes = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "head_dim")
    text = {name: getattr(base, name) for name in (*sizes, "num_key_value_heads", "rms_norm_eps")}
    vocabulary = base.vocab_size + len(tokens)
    config["text_config"] |= text | {"vocab_size": vocabulary, "eos_token_id": vocabulary - 1}
    (source / "config.json").write_text(json.dumps(config))
    generation = {"eos_token_id": vocabulary - 1, "bos_token_id": 1}
    (source / "generation_config.json").write_text(json.dumps(generation))
    monkeypatch.setattr(smol, "share_dir", lambda: share)
    return share


@pytest.fixture(autouse=True)
def base(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the base by a small one with random weights."""

    def small() -> tuple[LlamaForCausalLM, SimpleNamespace]:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        trainer = trainers.BpeTrainer(
            vocab_size=300,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator([QUESTION], trainer)
        config = LlamaConfig(
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=tokenizer.get_vocab_size(),
            bos_token_id=1,
            eos_token_id=2,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
        )
        torch.manual_seed(0)
        return LlamaForCausalLM(config), SimpleNamespace(backend_tokenizer=tokenizer)

    torch.set_num_threads(1)
    monkeypatch.setattr(smol_base, "base_model", small)


@pytest.fixture
def student(share: Path) -> SmolStudent:
    return SmolStudent(share / "models" / "smol", "cpu").eval()


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.stack([dataset.frame_window(seed) for seed in range(2)])


@torch.inference_mode()
def test_stored_changes_complete_to_the_student(
    student: SmolStudent, images: np.ndarray, tmp_path: Path
) -> None:
    for parameter in student.parameters():
        parameter.copy_((parameter + 0.02 * torch.randn_like(parameter)).bfloat16().float())
    stored = tmp_path / "stored"
    student.save(stored)
    assert {file.name for file in stored.iterdir()} >= {smol_base.CONFIG, smol_base.WEIGHTS, "config.json"}
    complete(stored)
    known = target_architecture(stored)
    target = known.model(known.load(Placement()), known.tokenizer())
    prompt = target.prompt_ids(QUESTION)
    assert prompt == student.target.prompt_ids(QUESTION)
    units = [target.unit(one, i) for i, one in enumerate(target.encode(images[0]))]
    rows = [target.opening(), *units, target.closing(QUESTION)]
    hidden = target.body(inputs_embeds=torch.cat([row.embeds for row in rows])[None]).last_hidden_state
    answer = int(target.logits(hidden[0, -1]).argmax())
    ours, _ = student.read(student.features(images[:1]), [[(QUESTION, "x")]])
    words = torch.cat([student.words, student.rows])
    assert answer == int((ours[0] @ words.T).argmax())


@torch.inference_mode()
def test_tower_begins_as_the_tiny_targets(student: SmolStudent, images: np.ndarray) -> None:
    folder = tiny_models() / "target"
    known = target_architecture(folder)
    tiny = known.model(known.load(Placement()), known.tokenizer())
    # Both see the same squares.
    frames = images[0][:, :, 10:74]
    pixels = student.target.pixels(frames)
    copy_tiny_tower(student.tower, folder, pixels)
    theirs = tiny.module.model.video_tower(tiny.pixels(frames), output_hidden_states=True)
    ours = student.tower(pixels, output_hidden_states=True)
    likeness = torch.cosine_similarity(
        ours.hidden_states[LAYERS].flatten(), theirs.hidden_states[LAYERS][:, 1:].flatten(), 0
    )
    assert likeness > 0.8


@pytest.mark.nightly
def test_training_writes_a_checkpoint(tmp_path: Path) -> None:
    args = argparse.Namespace(work=tmp_path / "work", out=tmp_path / "out", shrink=500, device="cpu")
    assert smol.run(args) == 0
    (checkpoint,) = (args.work / "captions").glob("checkpoint-*")
    log = json.loads((checkpoint / "trainer_state.json").read_text())["log_history"]
    assert any("eval_loss" in entry for entry in log)
    assert {file.name for file in args.out.iterdir()} >= {smol_base.CONFIG, smol_base.WEIGHTS}


def test_added_tokens_have_the_published_ids(shared: Path) -> None:
    published = json.loads((shared / "data/checkpoints/smolvlm2_500m/added_tokens.json").read_text())
    assert json.loads((share_dir() / "models/smol/added_tokens.json").read_text()) == published
