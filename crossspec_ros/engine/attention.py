"""Attention by matrix products for passes over few tokens, where torch's fused kernel leaves a GPU idle.

With a mask the fused kernel assigns all keys of a head and of 64 queries to one multiprocessor. A pass over
one token then uses 32 of an H200's 132 multiprocessors. Matrix products split the keys among all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface, PreTrainedModel

FEW_TOKENS = 64
"""Largest number of tokens in a pass for which products were faster on an H200, with 32 heads."""
_NAME = "crossspec_products"


def attend_by_products(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float = 1.0,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Return the attention output (b, n, heads, size).

    Queries are (b, heads, n, size), keys and values (b, groups, all, size). The additive mask is
    (b, 1, n, all). The heads of a group are rows of one product.
    """
    b, heads, n, size = query.shape
    shared = heads // key.shape[1]
    scores = query.reshape(b, key.shape[1], shared * n, size) @ key.transpose(2, 3) * scaling
    scores = scores + attention_mask.repeat(1, 1, shared, 1)
    weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    return (weights @ value).view(b, heads, n, size).transpose(1, 2).contiguous(), None


@contextmanager
def use_products(model: PreTrainedModel) -> Iterator[None]:
    """Set the model's attention to `attend_by_products` inside the `with` block."""
    before = model.config._attn_implementation
    model.set_attn_implementation(_NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


AttentionInterface.register(_NAME, attend_by_products)
