"""The pair: in every dtype, from one folder or from two; missing files are named."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoint_layouts import TINY, copied, edit, hub_weights, weights, write
from crossspec_lab.world.dataset import event_window, frame_window
from refusals import refused

from crossspec_ros.errors import InputError
from crossspec_ros.models.base import LanguageModel
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import DTYPES, Placement
from crossspec_ros.models.registry import target_spec

QUESTION = "What are the key elements in this scene?"
DRIVE = 1_000_000


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY, tmp_path / "models"))


def greedy(model: LanguageModel, inputs: list[torch.Tensor], ends: tuple[int, ...]) -> str:
    """Text by the model's own logits, which must all be finite."""
    embeds, tokens = torch.cat(inputs), []
    while len(tokens) < 64 and not set(tokens[-1:]) & set(ends):
        hidden = model.body(inputs_embeds=embeds[None]).last_hidden_state[0]
        logits = model.logits(hidden[-1:])[0]
        assert torch.isfinite(logits).all()
        tokens.append(int(logits.argmax()))
        embeds = torch.cat([embeds, model.words((tokens[-1],)).embeds])
    return model.tokenizer.decode(tokens)


@torch.inference_mode()
def captions(pair: ModelPair) -> tuple[str, str]:
    """Captions of a held-out drive by target and draft."""
    target, draft = pair.target, pair.draft
    assert draft is not None
    units = [target.unit(features, i) for i, features in enumerate(target.encode(frame_window(DRIVE)))]
    read = [piece.embeds for piece in (target.opening(), *units, target.closing(QUESTION))]
    prompt = draft.prompt(QUESTION, draft.encode(event_window(DRIVE)))
    return greedy(target, read, target.spec.eos_ids), greedy(draft, [prompt.embeds], draft.eos_ids)


@pytest.fixture(scope="module")
def exact() -> tuple[str, str]:
    pair = load_pair(TINY)
    assert (pair.frames, pair.event_images, pair.frame_size, pair.event_image_size) == (8, 5, 64, 64)
    assert pair.shared_ids == 575
    return captions(pair)


@pytest.mark.parametrize(
    "dtype", ["bf16", *(pytest.param(dtype, marks=pytest.mark.nightly) for dtype in DTYPES[2:])]
)
def test_every_dtype_captions(dtype: str, exact: tuple[str, str]) -> None:
    pair = load_pair(TINY, placement=Placement(dtype))
    for model in (pair.target, pair.draft):
        assert model is not None
        assert model.dtype == model.module.lm_head.weight.dtype == torch.bfloat16
        stored = {"int8": torch.int8, "nf4": torch.uint8}.get(dtype, torch.bfloat16)
        assert model.body.layers[0].mlp.up_proj.weight.dtype == stored
        towers = [own for name, own in model.module.named_parameters() if "_tower." in name]
        assert towers and {own.dtype for own in towers} == {torch.bfloat16}
    for text, reference in zip(captions(pair), exact, strict=True):
        # All captions of this world are sentences about the same things; the tiny models keep to that.
        words, others = text.split(), reference.split()
        assert text.endswith(".") and len(words) >= 5
        assert np.mean([word in others for word in words]) > 0.8


def test_the_models_may_lie_apart(tmp_path: Path) -> None:
    target, draft = copied("target", tmp_path / "a"), copied("draft", tmp_path / "b")
    write(target, hub_weights(), "safetensors")
    write(draft, weights("draft"), "safetensors")
    assert load_pair("/nowhere", target=str(target), draft=str(draft)).frames == 8
    pair = load_pair("/nowhere", target=str(target), draft="none")
    assert pair.draft is None and pair.translation is None
    assert (pair.frames, pair.frame_size, pair.event_images, pair.event_image_size) == (8, 64, 0, 0)
    with refused("draft-folder-missing"):
        load_pair("/nowhere", target=str(target))
    with refused("target-folder-missing"):
        load_pair("/nowhere")


def test_each_model_has_its_own_end_tokens(models: Path) -> None:
    edit(models / "draft" / "config.json", eos_token_id=5)
    edit(models / "target" / "generation_config.json", eos_token_id=[9, 7])
    pair = load_pair(models)
    assert pair.draft is not None
    assert (pair.target.spec.eos_ids, pair.draft.eos_ids) == ((9, 7), (5,))
    edit(models / "target" / "generation_config.json", eos_token_id="</s>")
    with refused("end-token-text"):
        target_spec(models / "target")


FILES = ["target/model.safetensors", "target/config.json", "draft/clip/config.json", "draft/tokenizer.json"]


@pytest.mark.parametrize("is_missing", [True, False])
@pytest.mark.parametrize("file", FILES)
def test_a_missing_or_truncated_file_is_named(models: Path, file: str, is_missing: bool) -> None:
    data = (models / file).read_bytes()
    (models / file).unlink() if is_missing else (models / file).write_bytes(data[: len(data) // 2])
    named = models / file.split("/")[0] if is_missing else models / file
    with pytest.raises(InputError, match=f"'{named}'"):
        load_pair(models)


def test_a_config_does_not_choose_the_attention(models: Path) -> None:
    for name in ("target", "draft"):
        edit(models / name / "config.json", attn_implementation="a/b", _attn_implementation="a/b")
    pair = load_pair(models)
    assert {model.body.config._attn_implementation for model in (pair.target, pair.draft)} == {"sdpa"}
