"""Draft trees of the likeliest paths, by probabilities of each depth or by those of EAGLE-2's levels."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from crossspec_ros.engine.tree import DraftTree

WIDTH = 10
"""Tokens at each depth; also nodes that are extended in each level, and children of each, as in EAGLE-2."""
DEPTH = 7
"""Levels of the tree, as in EAGLE-2."""
Extend = Callable[[Sequence[int], Sequence[int]], Tensor]


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


def grow_dynamic(
    first: Tensor, extend: Extend, budget: int, min_prob: float, depth: int = DEPTH
) -> DraftTree:
    """EAGLE-2's dynamic tree (Li et al., 2024): in each level the likeliest paths are extended, and of all
    nodes the likeliest `budget` stay.

    Args:
        first: (vocabulary,) log probabilities of the next token.
        extend: gets the ids of some nodes and their parents, which are numbered in the order in which it got
            them, -1 before any; gives (nodes, vocabulary) log probabilities of what follows each.
    """
    least = math.log(min_prob) if min_prob > 0 else -math.inf
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
    return DraftTree(
        tuple(ids[node] for node in kept),
        tuple(place[parents[node]] for node in kept),
        tuple(math.exp(values[node]) for node in kept),
    )


def log_softmax(logits: Tensor) -> Tensor:
    """Return log probabilities in float32."""
    return torch.log_softmax(logits.float(), -1)
