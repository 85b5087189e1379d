"""Estimates from configs alone are what loaded models take, and what is known of the 7B models."""

from __future__ import annotations

from pathlib import Path

import pytest
from crossspec_lab.compare.released import released_pair

from crossspec_ros.models import footprint
from crossspec_ros.models.footprint import CUDA_BYTES, estimate, measured_bytes, memory, weight_bytes
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.placement import DTYPES, LLAMA_CPP, Placement, ladder
from crossspec_ros.models.registry import draft_architecture, target_architecture
from crossspec_ros.paths import tiny_models

TINY = tiny_models()

LLAMA_7B = 6_738_415_616
"""Parameters of LLaMA-7B with its vocabulary of 32000."""
CLIP_L, CLIP_L_336 = 303_179_776, 303_507_456
"""Of the vision towers of openai/clip-vit-large-patch14 and -336, without their projections."""


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_estimate_of_the_tiny_pair_is_what_it_takes_once_loaded(dtype: str) -> None:
    placement = Placement(dtype)
    pair = load_pair(TINY, 1, placement)
    assert pair.placement == placement
    estimated = estimate(placement, target_architecture(TINY / "target"), draft_architecture(TINY / "draft"))
    for model, size in ((pair.target, estimated.target), (pair.draft, estimated.draft)):
        assert size.weights == pytest.approx(measured_bytes(model.module), rel=0.005)


def test_weights_of_the_7b_pair() -> None:
    """Their parameters are those of the published parts; each dtype takes what its name says."""
    released = released_pair()
    target, draft = (model.skeleton() for model in released)
    counts = [sum(parameter.numel() for parameter in model.parameters()) for model in (target, draft)]
    square = 4096 * 4096 + 4096
    projector = 1024 * 4096 + 4096 + square
    # Both embeddings of a token are 4096 numbers long.
    assert counts[0] == LLAMA_7B + 2 * 4096 * (32064 - 32000) + CLIP_L + projector
    assert counts[1] == LLAMA_7B + 2 * 4096 * 3 + CLIP_L_336 + projector + square
    sizes = {dtype: weight_bytes(target, Placement(dtype), released[0].unquantized) for dtype in DTYPES}
    assert (sizes["float32"], sizes["bf16"]) == (4 * counts[0], 2 * counts[0])
    # LLaMA's 32 layers have 7 matrices each; the rest, norms among it, stays in two bytes.
    matrices = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11008)
    rest, scales = 2 * (counts[0] - matrices), 32 * 4 * (5 * 4096 + 2 * 11008)
    assert sizes["int8"] == rest + matrices + scales
    assert sizes["nf4"] == rest + matrices // 2 + matrices // 16


def test_caches_and_devices_of_the_7b_pair() -> None:
    choices = Placement("bf16", "cuda:0", "cuda:1"), Placement("bf16", "cuda:0"), Placement("nf4", "cuda:0")
    apart, together, nf4 = (estimate(choice, *released_pair()) for choice in choices)
    window = 8 * 257 + 512
    features = 3 * 8 * 257 * 4096
    assert apart.target.caches == 2 * (3 * 2 * 32 * 4096 * window + features)
    assert apart.draft.caches == 2 * 2 * 32 * 4096 * 1024
    assert apart.by_device() == {
        "cuda:0": apart.target.total + CUDA_BYTES,
        "cuda:1": apart.draft.total + CUDA_BYTES,
    }
    assert together.by_device() == {"cuda:0": together.target.total + together.draft.total + CUDA_BYTES}
    assert together.by_device("target") == {"cuda:0": together.target.total + CUDA_BYTES}
    # Both in bfloat16 need a card of 40 GB, in nf4 one of 24 GB.
    assert 32e9 < together.by_device()["cuda:0"] < 38e9
    assert 14e9 < nf4.by_device()["cuda:0"] < 20e9


def test_the_estimate_counts_the_caches_that_the_decoder_has() -> None:
    from crossspec_ros.captioning import live_windows
    from crossspec_ros.drafting import draft_model

    assert footprint.SESSIONS == live_windows.OPEN_WINDOWS + 1
    assert footprint.DRAFT_TOKENS == draft_model._ROOM


def test_this_machine_has_memory_and_a_container_no_more_than_it_may(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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


def test_each_smaller_choice_by_llama_cpp_takes_less() -> None:
    for target, draft in (
        released_pair(),
        (target_architecture(TINY / "target"), draft_architecture(TINY / "draft")),
    ):
        choices = list(ladder(Placement(engine=LLAMA_CPP)))
        needed = [estimate(choice, target, draft).by_device()["cpu"] for choice in choices]
        assert len(choices) == 3 and needed == sorted(needed, reverse=True)
    # The draft runs in torch, whatever the target's numbers are.
    assert {estimate(choice, target, draft).draft.weights for choice in choices} == {
        estimate(Placement(), target, draft).draft.weights
    }
