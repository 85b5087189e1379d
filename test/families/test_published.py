"""Checkpoints with published configs, templates and settings write the same tokens as transformers.

Their language models and towers are small, with random weights. Prompts, vocabularies and pictures have the
published sizes. Tokenizers are trained here, with the published special tokens and ids.
"""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoint_layouts import load_target
from crossspec_lab.baselines.generate_inputs import generate_inputs
from scripted_answer import ahead_of, answered
from tiny_targets import QUESTION, SPLIT, TINY_FAMILIES
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForImageTextToText

from crossspec_ros.engine.local import LocalEngine

CHECKPOINTS = Path(__file__).parents[3] / "shared" / "data" / "checkpoints"
TOKENS = 24
CORPUS = (
    f"user\nFrame1: \nFrame2: {QUESTION} assistant\n The red car. <0.1 seconds> User: You are provided the "
    "following series of eight frames from a 0:00:01 [H:MM:SS] video.\n\nFrame from 00:00:\n\n Assistant:"
)
# The smallest sizes of language models and towers.
TEXT = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1}  # fmt: skip
TOWER = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
QWEN_TOWER = {"hidden_size": 32, "intermediate_size": 48, "depth": 2, "num_heads": 2, "out_hidden_size": 32,
              "deepstack_visual_indexes": [0, 1]}  # fmt: skip
QWEN_ROPE = {"mrope_interleaved": True, "mrope_section": [4, 2, 2], "rope_type": "default"}

PUBLISHED = {
    "qwen3_vl_4b": ("qwen3_vl", {"head_dim": 16, "rope_scaling": QWEN_ROPE}, QWEN_TOWER),
    "llava_ov_0_5b": ("llava_onevision", {}, TOWER),
    "smolvlm2_500m": ("smolvlm", {"head_dim": 16}, TOWER),
    "internvl3_1b_hf": ("internvl", {}, TOWER),
    "internvl3_5_1b_hf": ("internvl", {"head_dim": 16}, TOWER),
}
"""Family, further values of the language model (in addition to `TEXT`), and values of the tower."""


def checkpoint(name, folder):
    """Write the published files, a tokenizer, and random weights."""
    _, text, tower = PUBLISHED[name]
    shutil.copytree(CHECKPOINTS / name, folder, copy_function=shutil.copyfile)
    file = folder / "config.json"
    values = json.loads(file.read_text())
    values["text_config"] |= TEXT | text
    values["vision_config"] |= tower
    file.write_text(json.dumps(values))
    tokenizer(folder, values["text_config"]["vocab_size"])
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(folder))
        for parameter in model.parameters():
            if parameter.dim() > 1:
                # Large, so that the output depends on the entire input.
                torch.nn.init.normal_(parameter, std=2 * parameter[0].numel() ** -0.5)
    kept = {path: path.read_bytes() for path in folder.glob("*config.json")}
    model.save_pretrained(folder)
    for path, content in kept.items():
        path.write_bytes(content)


def tokenizer(folder, rows):
    """Write a tokenizer with the published special tokens and ids, and other tokens below them."""
    published = json.loads((folder / "tokenizer_config.json").read_text()).get("added_tokens_decoder", {})
    added = {token["content"]: int(i) for i, token in published.items()}
    if (file := folder / "added_tokens.json").is_file():
        added |= json.loads(file.read_text())
    first = min(added.values())
    # SmolLM2's special tokens have the first ids.
    inside = [] if "<|im_end|>" in added else ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    made = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    split = pre_tokenizers.Split(Regex(SPLIT), "isolated")
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=bool(inside))
    made.pre_tokenizer = pre_tokenizers.Sequence([digits if inside else split, bytes_])
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=inside, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator([CORPUS] * 9, trainer)
    document = json.loads(made.to_str())
    vocabulary = document["model"]["vocab"]
    vocabulary |= {f"Ġ{i}": i for i in range(len(vocabulary), first)}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    document["added_tokens"] += [
        {"id": i, "content": token, **plain} for token, i in sorted(added.items(), key=lambda item: item[1])
    ]
    (folder / "tokenizer.json").write_text(json.dumps(document))


def template(folder):
    if (file := folder / "chat_template.jinja").is_file():
        return file.read_text()
    found: str = json.loads((folder / "chat_template.json").read_text())["chat_template"]
    return found


@pytest.mark.skipif(not CHECKPOINTS.is_dir(), reason="needs the metadata of published checkpoints")
@pytest.mark.parametrize("name", PUBLISHED)
@torch.inference_mode()
def test_published_checkpoint_equals_transformers(tmp_path, name):
    """Prompt, pixels and greedy tokens are equal."""
    folder = tmp_path / name
    checkpoint(name, folder)
    family = TINY_FAMILIES[PUBLISHED[name][0]]
    frames = np.random.default_rng(1).integers(0, 256, (8, 240, 320, 3), np.uint8)
    wanted = family.inputs(folder, frames, QUESTION, template(folder))
    target = load_target(folder)
    # In InternVL3's tokenizer `<video>` has no embedding.
    assert max(target.prompt_ids("Is a <video> on it?")[1]) < target.vocabulary
    ours = generate_inputs(target, frames, QUESTION)
    for value in ours:
        assert torch.equal(ours[value], wanted[value]), value
    module = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
    out = module.generate(**wanted, do_sample=False, max_new_tokens=TOKENS)
    tokens = out[0, wanted["input_ids"].shape[1] :].tolist()
    assert len(set(tokens)) > 5
    with closing(LocalEngine(target)) as engine:
        found = answered(engine, frames, ahead_of(tuple(tokens)), -(-len(tokens) // 6), question=QUESTION)
    assert found[: len(tokens)] == tuple(tokens)
