"""Pairs of models from one folder or two, and refusals of missing files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from checkpoint_layouts import TINY, copied, edit, hub_weights, weights, write
from refusals import refused

from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.registry import target_spec


@pytest.fixture
def models(tmp_path):
    return Path(shutil.copytree(TINY, tmp_path / "models"))


def test_shipped_pair_fits():
    pair = load_pair(TINY)
    assert pair.draft is not None and pair.translation is not None and pair.translation.unchanged
    assert (pair.target.spec.frames, pair.target.spec.image_size) == (8, 64)
    assert (pair.draft.event_images, pair.draft.image_size) == (5, 64)


def test_models_may_have_separate_folders(tmp_path):
    target, draft = copied("target", tmp_path / "a"), copied("draft", tmp_path / "b")
    write(target, hub_weights(), "safetensors")
    write(draft, weights("draft"), "safetensors")
    assert load_pair("/nowhere", target=str(target), draft=str(draft)).draft
    pair = load_pair("/nowhere", target=str(target), draft="none")
    assert pair.draft is None and pair.translation is None
    with refused("draft-folder-missing"):
        load_pair("/nowhere", target=str(target))
    with refused("target-folder-missing"):
        load_pair("/nowhere")


def test_each_model_has_its_own_end_tokens(models):
    edit(models / "draft" / "config.json", eos_token_id=5)
    edit(models / "target" / "generation_config.json", eos_token_id=[9, 7])
    pair = load_pair(models)
    assert pair.draft is not None
    assert (pair.target.spec.eos_ids, pair.draft.eos_ids) == ((9, 7), (5,))
    edit(models / "target" / "generation_config.json", eos_token_id="</s>")
    with refused("end-token-text"):
        target_spec(models / "target")


def test_config_cannot_choose_attention(models):
    for name in ("target", "draft", "draft/clip"):
        edit(models / name / "config.json", attn_implementation="a/b", _attn_implementation="a/b")
    pair = load_pair(models)
    assert pair.draft is not None
    tower = pair.draft.module.config.vision_config
    configs = pair.target.body.config, pair.draft.body.config, tower
    assert {config._attn_implementation for config in configs} == {"sdpa"}
