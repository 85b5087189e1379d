"""Draft trees of tokens whose probability depends on their depth alone."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from crossspec_ros.drafting.heads.head import Guess

WIDTH = 10
"""Tokens that each depth offers."""


@dataclass(frozen=True)
class Ranked:
    """The likeliest tokens of each depth, the best first, and their log probabilities."""

    values: Sequence[Sequence[float]]
    tokens: Sequence[Sequence[int]]

    @classmethod
    def of(cls, log_probs: Tensor, ids: Tensor | None = None) -> Ranked:
        """Rank (depth, n) log probabilities of each next token, whichever come before it; `ids` are those of
        the n, of a head with its own vocabulary."""
        best = log_probs.topk(min(WIDTH, log_probs.shape[-1]))
        tokens = best.indices if ids is None else ids[best.indices]
        return cls(best.values.tolist(), tokens.tolist())

    def and_then(self, following: Ranked) -> Ranked:
        """With those of the depths that follow."""
        return Ranked([*self.values, *following.values], [*self.tokens, *following.tokens])

    def since(self, depth: int) -> Ranked:
        """Without the first."""
        return Ranked(self.values[depth:], self.tokens[depth:])


def grow_by_depth(ranked: Ranked, budget: int, worth: float) -> Guess:
    """The likeliest `budget` paths, down to probability `worth`, where a token depends on its depth alone."""
    values, tokens = ranked.values, ranked.tokens
    if not values or budget <= 0:
        return Guess()
    least = math.log(worth) if worth > 0 else -math.inf
    ids: list[int] = []
    parents: list[int] = []
    probs: list[float] = []
    # By falling probability of the path; then parent, depth and rank among its siblings.
    heap = [(-values[0][0], -1, 0, 0)]
    while heap and len(ids) < budget:
        cost, parent, depth, rank = heapq.heappop(heap)
        if -cost < least:
            break
        above = -cost - values[depth][rank]
        node = len(ids)
        ids.append(tokens[depth][rank])
        parents.append(parent)
        probs.append(math.exp(values[depth][rank]))
        if rank + 1 < len(values[depth]):
            heapq.heappush(heap, (-(above + values[depth][rank + 1]), parent, depth, rank + 1))
        if depth + 1 < len(values):
            heapq.heappush(heap, (cost - values[depth + 1][0], node, depth + 1, 0))
    return Guess(tuple(ids), tuple(parents), tuple(probs))


def log_softmax(logits: Tensor) -> Tensor:
    """In float32, whatever the logits are in."""
    return torch.log_softmax(logits.float(), -1)
