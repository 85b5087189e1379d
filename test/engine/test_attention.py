"""Attention by matrix products equals torch's fused kernel, with grouped keys and any mask."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaModel

from crossspec_ros.engine.attention import use_products


@pytest.mark.parametrize(("heads", "key_heads"), [(4, 4), (4, 2), (6, 1)])
@torch.inference_mode()
def test_products_equal_fused_kernel(heads, key_heads):
    torch.manual_seed(heads)
    config = LlamaConfig(
        hidden_size=24,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        attn_implementation="sdpa",
    )
    model = LlamaModel(config).eval()
    hidden = torch.randn(3, 9, 24)
    attends = (torch.rand(3, 1, 9, 9) < 0.5) | torch.eye(9, dtype=torch.bool)
    mask = torch.zeros(3, 1, 9, 9).masked_fill(~attends, torch.finfo(torch.float32).min)

    def states():
        return model(inputs_embeds=hidden, attention_mask=mask).last_hidden_state

    fused = states()
    with use_products(model):
        torch.testing.assert_close(states(), fused, atol=1e-5, rtol=1e-5)
    with pytest.raises(ZeroDivisionError), use_products(model):
        raise ZeroDivisionError
    assert model.config._attn_implementation == "sdpa"
