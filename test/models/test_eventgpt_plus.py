"""EventGPT-Plus equals a plain implementation, for shrunk random checkpoints in the published layout.

The published code and weights were not run here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing

import numpy as np
import pytest
import torch
from checkpoint_layouts import edit, save
from refusals import refused
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from torch.nn import functional
from transformers import (
    CLIPVisionConfig,
    CLIPVisionModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Tokenizer,
    SiglipVisionConfig,
    SiglipVisionModel,
)

from crossspec_ros.drafting.draft_model import DraftModel
from crossspec_ros.models.eventgpt import EventGPT
from crossspec_ros.models.eventgpt_plus import EventGPTPlus
from crossspec_ros.models.footprint import cached_numbers, estimate
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.preprocess import clip_pixels, square_pixels
from crossspec_ros.models.registry import draft_architecture, event_image_spec, target_architecture
from crossspec_ros.paths import tiny_models
from crossspec_ros.telemetry.trace import Trace

QUESTION = "How does the child move across the tiled floor?"
PROMPT = (
    "<|im_start|>system\nYou are a helpful assistant. You are looking at a red-blue visualization of the "
    "Event Stream. Please answer the question based solely on the visual input. Do not make assumptions or "
    "guess beyond what is observable.\n<|im_end|>\n<|im_start|>user\n<event>\nHow does the child move "
    "across the tiled floor?<|im_end|>\n<|im_start|>assistant\n"
)
# Qwen2.5-1.5B-Instruct.
QWEN = {
    "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
    "num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
    "rms_norm_eps": 1e-06, "hidden_act": "silu", "tie_word_embeddings": True, "use_sliding_window": False,
    "sliding_window": 32768, "max_window_layers": 21, "bos_token_id": 151643, "eos_token_id": 151645,
}  # fmt: skip
# siglip-so400m-patch14-384.
SIGLIP = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304,
    "num_hidden_layers": 27, "num_attention_heads": 16, "image_size": 384, "patch_size": 14,
}  # fmt: skip
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
TOWERS = {
    "SigLIP": (SiglipVisionConfig, SiglipVisionModel, square_pixels),
    "CLIP": (CLIPVisionConfig, CLIPVisionModel, clip_pixels),
}
SIDE, PATCHES = 70, 5
"""Size of the shrunk tower's images, and patches along a side, an odd number as in the published tower."""
TOKENS = 24


def write_configs(folder, kind="SigLIP", language=QWEN, vision=SIGLIP):
    """Write the configs; the tower's is that of a complete model, in a folder of its own."""
    (folder / "tower").mkdir(parents=True)
    config = language | {"model_type": "eventgpt_plus_qwen", "event_tower": "tower", "event_tower_type": kind}
    config |= {"event_projector_type": "mlp", "event_tower_hidden_size": vision["hidden_size"]}
    (folder / "config.json").write_text(json.dumps(config | {"rope_scaling": None}))
    values = {"text_config": {}, "vision_config": vision}
    (folder / "tower" / "config.json").write_text(json.dumps(values))
    ends = [language["eos_token_id"], language["bos_token_id"]]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    return folder


def write_tokenizer(folder):
    """Write the files of the slow tokenizer, and return the number of ids with the added tokens."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator([PROMPT.replace("<", " ").replace("|", " ")] * 9, trainer)
    made.model.save(str(folder))
    first = made.get_vocab_size()
    added = {token: first + i for i, token in enumerate(("<|endoftext|>", "<|im_start|>", "<|im_end|>"))}
    (folder / "added_tokens.json").write_text(json.dumps(added))
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    decoder = {i: {"content": token, **flags} for token, i in added.items()}
    values = {"added_tokens_decoder": decoder, "tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(values | {"pad_token": "<|endoftext|>"}))
    return first + len(added)


class Plain(nn.Module):
    """The published model from its parts, with the names of its tensors."""

    def __init__(self, language, tower):
        super().__init__()
        width = language.config.hidden_size
        self.language, self.tower = language, tower
        self.projector = nn.Sequential(
            nn.Linear(tower.config.hidden_size, width), nn.GELU(), nn.Linear(width, width)
        )

    def tensors(self):
        tensors = dict(self.language.state_dict())
        prefix = "model.event_tower.vision_tower.vision_model."
        tensors |= {prefix + name: value for name, value in self.tower.state_dict().items()}
        named = {
            f"model.event_projector.{name}": value for name, value in self.projector.state_dict().items()
        }
        tensors |= named
        del tensors["lm_head.weight"]
        return tensors

    def encode(self, pixels):
        outputs = self.tower(pixels).last_hidden_state
        if isinstance(self.tower, CLIPVisionModel):
            outputs = outputs[:, 1:]
        tokens = self.projector(outputs)
        count, _, width = tokens.shape
        grid = tokens.view(count, PATCHES, PATCHES, width).permute(0, 3, 1, 2)
        return functional.avg_pool2d(grid, 2).permute(0, 2, 3, 1).reshape(-1, width)


@pytest.fixture(scope="module", params=TOWERS)
def checkpoint(request, tmp_path_factory):
    """Return a folder, and the plain model of its weights."""
    folder, kind = tmp_path_factory.mktemp("plus") / "checkpoint", request.param
    config_kind, tower_kind, _ = TOWERS[kind]
    small = {**SMALL, "image_size": SIDE, "patch_size": SIDE // PATCHES}
    language = QWEN | SMALL | {"bos_token_id": 400, "eos_token_id": 402, "num_key_value_heads": 1}
    write_configs(folder, kind, language | {"vocab_size": 512}, small)
    assert write_tokenizer(folder) < 512
    with torch.random.fork_rng():
        torch.manual_seed(5)
        values = json.loads((folder / "config.json").read_text())
        language = Qwen2ForCausalLM(Qwen2Config.from_dict(values)).eval()
        plain = Plain(language, tower_kind(config_kind(**small)).eval())
        for parameter in plain.parameters():
            if parameter.dim() > 1:
                # Large, so that the output depends on the entire input.
                nn.init.normal_(parameter, std=2 * parameter[0].numel() ** -0.5)
    save(folder / "model.safetensors", plain.tensors())
    return folder, plain, kind


def loaded(folder):
    architecture = draft_architecture(folder)
    return architecture.model(architecture.load(Placement()), architecture.tokenizer())


@torch.inference_mode()
def test_draft_equals_plain_implementation(checkpoint):
    folder, plain, kind = checkpoint
    images = np.random.default_rng(2).integers(0, 256, (8, SIDE, 94, 3), np.uint8)
    expected = plain.encode(TOWERS[kind][2](images, SIDE))
    draft = loaded(folder)
    assert isinstance(draft, EventGPTPlus)
    events = draft.encode(images)
    assert events.shape == (8 * (PATCHES // 2) ** 2, 32)
    torch.testing.assert_close(events, expected)
    tokenizer = Qwen2Tokenizer.from_pretrained(folder)
    before, after = (tokenizer(text).input_ids for text in PROMPT.split("<event>"))
    words = plain.language.get_input_embeddings()
    inputs = torch.cat([words(torch.tensor(before)), expected, words(torch.tensor(after))])
    torch.testing.assert_close(draft.prompt(QUESTION, events).embeds, inputs)
    out = plain.language.generate(
        inputs_embeds=inputs[None], do_sample=False, max_new_tokens=TOKENS, eos_token_id=list(draft.eos_ids)
    )
    with closing(DraftModel(draft, None)) as drafts:
        running = drafts.draft(images, QUESTION, TOKENS)
        drafts.submit(running.run, Trace()).result()
    assert running.tokens == out[0].tolist()
    assert len(set(running.tokens)) > 5
    assert (draft.event_images, draft.image_size, draft.eos_ids) == (8, SIDE, (402, 400))


def test_spec_needs_no_torch(checkpoint):
    folder, *_ = checkpoint
    assert event_image_spec(folder) == (8, 25, SIDE)
    code = f"""
import sys
from pathlib import Path
from crossspec_ros.models.registry import event_image_spec
event_image_spec(Path({str(folder)!r}))
assert not {{"torch", "transformers"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tower_may_have_other_places(checkpoint, tmp_path):
    """Its weights in its folder, and a path of another machine in config.json."""
    folder, plain, _ = checkpoint
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in folder.glob("*.*"):
        (copy / file.name).write_bytes(file.read_bytes())
    edit(copy / "config.json", event_tower="/home/someone/tower")
    with refused("plus-tower-missing"):
        draft_architecture(copy)
    tensors, prefix = plain.tensors(), "model.event_tower.vision_tower."
    tower = {name.removeprefix(prefix): tensors.pop(name) for name in [*tensors] if name.startswith(prefix)}
    save(copy / "model.safetensors", tensors | {"model.point_cloud_projector.0.weight": torch.zeros(2)})
    (copy / "tower").mkdir()
    (copy / "tower" / "config.json").write_bytes((folder / "tower" / "config.json").read_bytes())
    save(copy / "tower" / "model.safetensors", tower | {"text_model.head.weight": torch.zeros(3)})
    expected, found = (loaded(one).module.state_dict() for one in (folder, copy))
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_published_sizes_fit_two_billion_parameters_and_room(tmp_path):
    plus = draft_architecture(write_configs(tmp_path / "plus"))
    count = sum(one.numel() for one in plus.skeleton.parameters())
    assert 1.9e9 < count < 2.1e9
    with torch.device("meta"):
        tokens = plus.skeleton.encode_events(torch.zeros(8, 3, 384, 384))
    assert tokens.shape == (1352, 1536) and plus.room > 1352 + 64 + 512
    target = target_architecture(tiny_models() / "target")
    needed = estimate(Placement("bf16"), target, plus).draft
    assert needed.caches == 2 * plus.room * cached_numbers(plus.text) and needed.weights == 2 * count
    assert EventGPT.room < EventGPTPlus.room


@pytest.mark.parametrize("name", ["event_tower_type", "event_projector_type"])
def test_other_parts_are_refused(tmp_path, name):
    folder = write_configs(tmp_path / "plus")
    edit(folder / "config.json", **{name: "Q-Former"})
    with refused("plus-tower-type" if name == "event_tower_type" else "plus-projector-type"):
        draft_architecture(folder)


@pytest.mark.parametrize(
    ("values", "lacks"),
    [({"tokenizer_class": "GPT2Tokenizer"}, ""), ({}, "merges.txt")],
    ids=["GPT-2", "merges"],
)
def test_slow_tokenizers_of_others_are_refused(tmp_path, values, lacks):
    folder = write_configs(tmp_path / "plus")
    write_tokenizer(folder)
    edit(folder / "tokenizer_config.json", **values)
    if lacks:
        (folder / lacks).unlink()
    with refused("tokenizer-not-qwen"):
        draft_architecture(folder).tokenizer()


def test_slow_tokenizer_keeps_ids(checkpoint):
    folder, *_ = checkpoint
    tokenizer, expected = draft_architecture(folder).tokenizer(), Qwen2Tokenizer.from_pretrained(folder)
    for text in (PROMPT, "naïve 赤 😀", "12345  spaces\n\nx", "<|im_end|>"):
        assert tokenizer.encode(text).ids == expected(text).input_ids
    # Of `mm_use_ev_patch_token`, whose default is true.
    assert tokenizer.token_to_id("<ev_patch>") == len(json.loads((folder / "vocab.json").read_text())) + 3
