"""Fewer tokens for the frames: shapes, a hard choice among four ways, and a target that sees less."""

from __future__ import annotations

import pytest
import torch
from crossspec_lab.baselines.compression import A_FRAME, CompressedTarget, ElasticCompressor
from crossspec_lab.world.phrases import QUESTION

from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

WIDTH, KEPT = 16, 4


@pytest.fixture
def tokens() -> torch.Tensor:
    return torch.randn(3, 34, WIDTH, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def seen() -> torch.Tensor:
    """The last of the inputs is padded from the 17th token on."""
    seen = torch.ones(3, 34, dtype=torch.bool)
    seen[2, 17:] = False
    return seen


def test_each_input_chooses_one_way_and_the_gate_learns(tokens: torch.Tensor, seen: torch.Tensor) -> None:
    torch.manual_seed(0)
    compress = ElasticCompressor(WIDTH, KEPT, 2)
    choice = compress.choice(tokens, seen)
    assert (choice.round().detach() == choice.detach()).all()
    assert choice.sum(-1).tolist() == pytest.approx([1, 1, 1])
    compress(tokens, seen).square().mean().backward()
    assert compress.gate.weight.grad is not None and compress.gate.weight.grad.abs().sum() > 0
    # One input alone takes its way without the others; the result is the same.
    compress.eval()
    together = compress(tokens, seen)
    torch.testing.assert_close(compress(tokens[:1], seen[:1]), together[:1])


def test_a_target_that_reads_pooled_frames_sees_less_and_still_speaks(
    pair: ModelPair, windows: list[Window]
) -> None:
    way = CompressedTarget(pair)
    try:
        written = way(windows[0], QUESTION, Trace())
        spec = way.pair.target.spec
    finally:
        way.close()
    assert spec.frame_tokens == 8 * A_FRAME < pair.target.spec.frame_tokens
    assert written.tokens and sum(written.accept_lengths) == len(written.tokens)
