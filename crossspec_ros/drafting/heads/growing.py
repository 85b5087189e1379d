"""Draft trees from what a head believes: by depth alone, or level by level."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from crossspec_ros.drafting.heads.head import Guess

Extend = Callable[[Sequence[int], Sequence[int]], Tensor]

WIDTH = 10
"""Nodes of a dynamic tree that are extended in each level, and children of each; EAGLE-2's."""
DEPTH = 7
"""Levels of a dynamic tree; EAGLE-2's."""


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


def grow_dynamic(first: Tensor, extend: Extend, budget: int, worth: float, depth: int = DEPTH) -> Guess:
    """EAGLE-2's dynamic tree (Li et al., 2024): in each level the likeliest paths are extended, and of all
    nodes the likeliest `budget` stay.

    Args:
        first: (vocabulary,) log probabilities of the next token.
        extend: gets the ids of some nodes and their parents, which are numbered in the order in which it got
            them, -1 before any; gives (nodes, vocabulary) log probabilities of what follows each.
    """
    least = math.log(worth) if worth > 0 else -math.inf
    width = min(WIDTH, len(first))
    ids: list[int] = []
    parents: list[int] = []
    values: list[float] = []
    paths: list[float] = []
    # The nodes whose children come next, and what `extend` calls those that it got.
    level, extended = [-1], {-1: -1}
    log_probs = first[None]
    for left in range(depth - 1, -1, -1):
        best = log_probs.topk(width)
        found = [
            ((paths[node] if node >= 0 else 0.0) + value, node, token, value)
            for node, row, tokens in zip(level, best.values.tolist(), best.indices.tolist(), strict=True)
            for value, token in zip(row, tokens, strict=True)
        ]
        begin = len(ids)
        # Stable, so that of equal ones the first stays first.
        for path, node, token, value in sorted(found, key=lambda one: -one[0])[: max(width, budget)]:
            if path >= least:
                ids.append(token)
                parents.append(node)
                values.append(value)
                paths.append(path)
        level = list(range(begin, min(begin + width, len(ids))))
        if not level or not left:
            break
        log_probs = extend([ids[node] for node in level], [extended[parents[node]] for node in level])
        extended |= {node: len(extended) - 1 + n for n, node in enumerate(level)}
    kept = sorted(sorted(range(len(ids)), key=lambda node: -paths[node])[: max(0, budget)])
    place = {-1: -1, **{node: n for n, node in enumerate(kept)}}
    return Guess(
        tuple(ids[node] for node in kept),
        tuple(place[parents[node]] for node in kept),
        tuple(math.exp(values[node]) for node in kept),
    )


def log_softmax(logits: Tensor) -> Tensor:
    """In float32, whatever the logits are in."""
    return torch.log_softmax(logits.float(), -1)
