"""Estimates from configs equal the memory of loaded models and the published sizes of the 7B models."""

from __future__ import annotations

import pytest
import torch
from crossspec_lab.bench.random_pair import released_pair

from crossspec_ros.models import footprint
from crossspec_ros.models.footprint import CUDA_BYTES, estimate, measured_bytes, memory
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.placement import LLAMA_KINDS, Placement
from crossspec_ros.models.registry import draft_architecture, target_architecture
from crossspec_ros.paths import tiny_models
from crossspec_ros.settings import DTYPES, LLAMA_CPP

TINY = tiny_models()


@pytest.mark.parametrize("dtype", DTYPES)
@torch.inference_mode()
def test_loaded_pair_has_estimated_weights_and_dtype(dtype):
    placement = Placement(dtype)
    pair = load_pair(TINY, 1, placement)
    estimated = estimate(placement, target_architecture(TINY / "target"), draft_architecture(TINY / "draft"))
    for model, size in ((pair.target, estimated.target), (pair.draft, estimated.draft)):
        assert model is not None
        assert size.weights == pytest.approx(measured_bytes(model.module), rel=0.005)
        kept = {model.dtype, model.module.lm_head.weight.dtype}
        kept |= {own.dtype for name, own in model.module.named_parameters() if "_tower." in name}
        assert kept == {placement.torch_dtype}
        stored = {"int8": torch.int8, "nf4": torch.uint8}.get(dtype, placement.torch_dtype)
        assert model.body.layers[0].mlp.up_proj.weight.dtype == stored
        hidden = model.body(inputs_embeds=model.words((1, 5, 7)).embeds[None]).last_hidden_state[0]
        assert torch.isfinite(model.logits(hidden)).all()


def test_7b_pair_has_expected_caches():
    choices = Placement("bf16", "cuda:0", "cuda:1"), Placement("bf16", "cuda:0"), Placement("nf4", "cuda:0")
    pair = released_pair()
    apart, together, nf4 = (estimate(choice, *pair) for choice in choices)
    window = 8 * 257 + 512
    features = 3 * 8 * 257 * 4096
    assert apart.target.caches == 2 * (3 * 2 * 32 * 4096 * window + features)
    assert apart.draft.caches == 2 * 2 * 32 * 4096 * 1024
    assert apart.by_device() == {
        "cuda:0": apart.target.total + CUDA_BYTES,
        "cuda:1": apart.draft.total + CUDA_BYTES,
    }
    assert together.by_device() == {"cuda:0": together.target.total + together.draft.total + CUDA_BYTES}
    assert together.by_device(with_draft=False) == {"cuda:0": together.target.total + CUDA_BYTES}
    # Both in bfloat16 need a card of 40 GB, in nf4 one of 24 GB.
    assert 32e9 < together.by_device()["cuda:0"] < 38e9
    assert 14e9 < nf4.by_device()["cuda:0"] < 20e9


def test_estimate_has_decoders_cache_sizes():
    from crossspec_ros.captioning import live_windows

    assert footprint.SESSIONS == live_windows.OPEN_WINDOWS + 1


def test_container_limits_memory(monkeypatch, tmp_path):
    free, total = memory("cpu")
    assert 0 < free <= total
    for name, text in {
        "max": "1000000",
        "current": "600000",
        "stat": "active_file 30\ninactive_file 70\n",
    }.items():
        (tmp_path / f"memory.{name}").write_text(text)
    monkeypatch.setattr(footprint, "_CGROUP", tmp_path)
    assert memory("cpu") == (400100, 1000000)
    (tmp_path / "memory.max").write_text("max\n")
    assert memory("cpu")[1] == total


def test_smaller_llama_dtypes_need_less():
    pair = released_pair()
    found = [estimate(Placement(dtype, engine=LLAMA_CPP), *pair) for dtype in LLAMA_KINDS]
    needed = [one.by_device()["cpu"] for one in found]
    assert needed == sorted(needed, reverse=True)
    # The draft runs in torch, in float32.
    assert {one.draft.weights for one in found} == {estimate(Placement(), *pair).draft.weights}
