"""Attention of passes over few tokens: by matrix products, for torch's fused kernel leaves a GPU idle.

With a mask that kernel gives one multiprocessor all keys of a head and of 64 queries. So a pass over one
token uses 32 of an H200's 132; matrix products split the keys among all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface, PreTrainedModel

FUSED = "sdpa"
"""Name by which transformers knows torch's fused kernel."""
PRODUCTS = "crossspec_products"
"""Name by which transformers knows `products`."""
_FEW_TOKENS = 64
"""Tokens of all sequences of a pass up to which products were quicker on an H200, with 32 heads."""


def products(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float = 1.0,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Output (b, n, heads, size) of queries (b, heads, n, size), keys and values (b, groups, all, size), and
    an additive mask (b, 1, n, all); heads of a group are rows of one product."""
    b, heads, n, size = query.shape
    shared = heads // key.shape[1]
    scores = query.reshape(b, key.shape[1], shared * n, size) @ key.transpose(2, 3) * scaling
    assert attention_mask is not None, "here is no other causality"
    scores = scores + attention_mask.repeat(1, 1, shared, 1)
    weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    return (weights @ value).view(b, heads, n, size).transpose(1, 2).contiguous(), None


def fitting(device: torch.device, sequences: int, tokens: int) -> str:
    """Name of the attention for a captured pass over so many tokens of so many sequences.

    It hangs on the shape alone, so that such a pass gives the same numbers in every process.
    """
    return PRODUCTS if device.type == "cuda" and sequences * tokens <= _FEW_TOKENS else FUSED


@contextmanager
def attending(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Let the model attend by the attention of this name as long as the `with` lasts."""
    before = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


AttentionInterface.register(PRODUCTS, products)
