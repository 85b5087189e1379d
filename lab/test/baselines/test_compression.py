"""SpecVLM's compressor chooses one of four methods."""

from __future__ import annotations

import pytest
import torch
from crossspec_lab.baselines.compression import ElasticCompressor


def test_each_input_has_one_method_and_the_gate_learns() -> None:
    torch.manual_seed(0)
    tokens, mask = torch.randn(3, 34, 16), torch.ones(3, 34, dtype=torch.bool)
    mask[2, 17:] = False
    compress = ElasticCompressor(width=16, kept=4, heads=2)
    choice = compress.choice(tokens, mask)
    torch.testing.assert_close(choice.round(), choice)
    assert choice.sum(-1).tolist() == pytest.approx([1, 1, 1])
    compress(tokens, mask).square().mean().backward()
    assert compress.gate.weight.grad is not None and compress.gate.weight.grad.abs().sum() > 0
    # A single input needs one method only; the result is the same.
    compress.eval()
    together = compress(tokens, mask)
    assert together.shape == (3, 4, 16)
    torch.testing.assert_close(compress(tokens[:1], mask[:1]), together[:1])
