"""Draft trees of tokens whose probability depends on their depth alone."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from crossspec_ros.engine.tree import DraftTree

WIDTH = 10
"""Tokens at each depth."""


@dataclass(frozen=True)
class Ranked:
    """The likeliest tokens of each depth, best first, and their log probabilities."""

    values: Sequence[Sequence[float]]
    tokens: Sequence[Sequence[int]]

    @classmethod
    def of(cls, log_probs: Tensor, ids: Tensor | None = None) -> Ranked:
        """Rank (depth, n) log probabilities, of the n `ids` if these are not all of the target's tokens."""
        values, indices = log_probs.topk(min(WIDTH, log_probs.shape[-1]))
        return cls(values.tolist(), (indices if ids is None else ids[indices]).tolist())

    def and_then(self, following: Ranked) -> Ranked:
        """Append the depths that follow."""
        return Ranked([*self.values, *following.values], [*self.tokens, *following.tokens])

    def since(self, depth: int) -> Ranked:
        """Leave out the depths before this one."""
        return Ranked(self.values[depth:], self.tokens[depth:])


def grow_by_depth(ranked: Ranked, budget: int, min_prob: float) -> DraftTree:
    """Return the likeliest `budget` paths, down to probability `min_prob`."""
    values, tokens = ranked.values, ranked.tokens
    nodes = list[tuple[int, int, float]]()
    # Log probability of the path, negated; parent, depth and rank among siblings.
    heap = [(-values[0][0], -1, 0, 0)] if values else []
    while heap and len(nodes) < budget:
        cost, parent, depth, rank = heapq.heappop(heap)
        if math.exp(-cost) < min_prob:
            break
        value, node = values[depth][rank], len(nodes)
        nodes.append((tokens[depth][rank], parent, math.exp(value)))
        if rank + 1 < len(values[depth]):
            heapq.heappush(heap, (cost + value - values[depth][rank + 1], parent, depth, rank + 1))
        if depth + 1 < len(values):
            heapq.heappush(heap, (cost - values[depth + 1][0], node, depth + 1, 0))
    ids, parents, probs = zip(*nodes, strict=True) if nodes else ((), (), ())
    return DraftTree(ids, parents, probs)


def log_softmax(logits: Tensor) -> Tensor:
    """Return log probabilities in float32."""
    return torch.log_softmax(logits.float(), -1)
