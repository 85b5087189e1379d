"""Attention of passes over few tokens by matrix products, because torch's fused kernel leaves a GPU idle.

With a mask that kernel gives one multiprocessor all keys of a head and of 64 queries. So a pass over one
token uses 32 of an H200's 132 multiprocessors; matrix products split the keys among all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface, PreTrainedModel

FEW_TOKENS = 64
"""Tokens of all sequences of a pass up to which products were faster on an H200, with 32 heads."""
_NAME = "crossspec_products"


def products(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float = 1.0,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Output (b, n, heads, size) of queries (b, heads, n, size), keys and values (b, groups, all, size), and
    an additive mask (b, 1, n, all); heads of a group are rows of one product."""
    b, heads, n, size = query.shape
    shared = heads // key.shape[1]
    scores = query.reshape(b, key.shape[1], shared * n, size) @ key.transpose(2, 3) * scaling
    scores = scores + attention_mask.repeat(1, 1, shared, 1)
    weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    return (weights @ value).view(b, heads, n, size).transpose(1, 2).contiguous(), None


@contextmanager
def attending_by_products(model: PreTrainedModel) -> Iterator[None]:
    """Let the model attend by `products` as long as the `with` lasts."""
    before = model.config._attn_implementation
    model.set_attn_implementation(_NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


AttentionInterface.register(_NAME, products)
