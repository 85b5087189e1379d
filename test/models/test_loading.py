"""The pair as a whole: in every precision, from one folder or from two, and what is missing is named."""

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
from crossspec_ros.models.config_files import read_json
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import DTYPES, Placement
from crossspec_ros.models.registry import target_spec

QUESTION = "What are the key elements in this scene?"
DRIVE = 1_000_000


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY, tmp_path / "models"))


def test_the_shipped_pair_fits_together() -> None:
    pair = load_pair(TINY)
    assert (pair.frames, pair.event_images, pair.frame_size, pair.event_image_size) == (8, 5, 64, 64)
    assert pair.draft is not None
    assert (pair.shared_ids, pair.target.spec.eos_ids, pair.draft.eos_ids) == (575, (2,), (2,))
    size = sum(f.stat().st_size for f in TINY.rglob("*") if f.is_file())
    assert size < 25_000_000


def said(model: LanguageModel, inputs: list[torch.Tensor], ends: tuple[int, ...]) -> str:
    """Greedy, on the model's own logits, which must all be finite."""
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
    """What target and draft say of a held-out drive."""
    target, draft = pair.target, pair.draft
    assert draft is not None
    frames = frame_window(DRIVE)
    units = [target.unit(features, i) for i, features in enumerate(target.encode(frames))]
    read = [piece.embeds for piece in (target.opening(), *units, target.closing(QUESTION))]
    asked = draft.prompt(QUESTION, draft.encode(event_window(DRIVE)))
    return said(target, read, target.spec.eos_ids), said(draft, [asked.embeds], draft.eos_ids)


@pytest.fixture(scope="module")
def exact() -> tuple[str, str]:
    return captions(load_pair(TINY))


@pytest.mark.parametrize(
    "dtype", [*DTYPES[:2], *(pytest.param(dtype, marks=pytest.mark.nightly) for dtype in DTYPES[2:])]
)
def test_every_precision_captions(dtype: str, exact: tuple[str, str]) -> None:
    pair = load_pair(TINY, placement=Placement(dtype))
    wanted = torch.float32 if dtype == "float32" else torch.bfloat16
    for model in (pair.target, pair.draft):
        assert model.dtype == model.module.lm_head.weight.dtype == wanted and model.device.type == "cpu"
        stored = {"int8": torch.int8, "nf4": torch.uint8}.get(dtype, wanted)
        assert model.body.layers[0].mlp.up_proj.weight.dtype == stored
        towers = [own for name, own in model.module.named_parameters() if "_tower." in name]
        assert towers and {own.dtype for own in towers} == {wanted}
    for text, reference in zip(captions(pair), exact, strict=True):
        # All captions of this world are sentences about the same things; the tiny models keep to that.
        words, others = text.split(), reference.split()
        assert text.endswith(".") and len(words) >= 5
        assert np.mean([word in others for word in words]) > (0.99 if dtype == "float32" else 0.8)


def test_the_models_may_lie_apart(tmp_path: Path) -> None:
    target, draft = copied("target", tmp_path / "a"), copied("draft", tmp_path / "b")
    write(target, hub_weights(), "safetensors shards index")
    write(draft, weights("draft"), "bin shards index")
    pair = load_pair("/nowhere", target=str(target), draft=str(draft))
    assert pair.frames == 8
    with refused("draft-folder-missing"):
        load_pair("/nowhere", target=str(target))
    with refused("target-folder-missing"):
        load_pair("/nowhere")


def test_a_target_may_do_without_a_draft(models: Path) -> None:
    shutil.rmtree(models / "draft")
    pair = load_pair(models, draft="none")
    assert pair.draft is None and pair.translation is None
    assert (pair.frames, pair.frame_size, pair.event_images, pair.event_image_size) == (8, 64, 0, 0)
    assert pair.placement == Placement()


def test_each_model_ends_in_its_own_way(models: Path) -> None:
    edit(models / "draft" / "config.json", eos_token_id=5)
    edit(models / "target" / "generation_config.json", eos_token_id=[9, 7])
    pair = load_pair(models)
    assert pair.draft is not None
    assert (pair.target.spec.eos_ids, pair.draft.eos_ids) == ((9, 7), (5,))
    assert target_spec(models / "target").eos_ids == (9, 7)
    edit(models / "target" / "generation_config.json", eos_token_id="</s>")
    with refused("end-token-text"):
        load_pair(models)


FILES = ["target/model.safetensors", "draft/model.safetensors", "target/config.json", "draft/config.json",
         "draft/clip/config.json", "draft/tokenizer.json", "target/generation_config.json"]  # fmt: skip


@pytest.mark.parametrize("is_missing", [True, False])
@pytest.mark.parametrize("file", FILES)
def test_a_missing_or_truncated_file_is_named(models: Path, file: str, is_missing: bool) -> None:
    if is_missing and "generation" in file:
        pytest.skip("a pair needs no generation_config.json")
    data = (models / file).read_bytes()
    (models / file).unlink() if is_missing else (models / file).write_bytes(data[: len(data) // 2])
    named = models / file.split("/")[0] if is_missing else models / file
    with pytest.raises(InputError, match=f"'{named}'"):
        load_pair(models)


@pytest.mark.parametrize("asked", ["flash_attention_2", "someone/kernel"])
def test_a_config_does_not_choose_the_attention(models: Path, asked: str) -> None:
    for name in ("target", "draft"):
        edit(models / name / "config.json", attn_implementation=asked, _attn_implementation=asked)
    pair = load_pair(models)
    assert {model.body.config._attn_implementation for model in (pair.target, pair.draft)} == {"sdpa"}


def test_a_file_that_has_changed_is_parsed_again(models: Path) -> None:
    assert target_spec(models / "target").eos_ids == (2,)
    edit(models / "target" / "generation_config.json", eos_token_id=[2, 3])
    assert target_spec(models / "target").eos_ids == (2, 3)
    # What a caller does with its values is its own.
    read_json(models / "target" / "config.json").clear()
    assert load_pair(models).frames == 8
