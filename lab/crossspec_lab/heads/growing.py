"""Draft trees of the likeliest paths, grown node by node or, as in EAGLE-2, level by level."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from crossspec_ros.engine.tree import ROOT, DraftTree

WIDTH = 10
"""Tokens after each node, and nodes of each level that are extended, as in EAGLE-2."""
DEPTH = 7
"""Levels of the tree, as in EAGLE-2."""
Row = list[tuple[int, float]]
"""Tokens and their probabilities."""


def ranked(log_probs: Tensor) -> list[Row]:
    """Return the likeliest tokens of each row of (n, vocabulary) log probabilities, best first."""
    best = log_probs.topk(min(WIDTH, log_probs.shape[-1]))
    rows = zip(best.indices.tolist(), best.values.exp().tolist(), strict=True)
    return [list(zip(*row, strict=True)) for row in rows]


def grow(
    children: Callable[[tuple[int, ...]], Iterable[tuple[int, float]]], budget: int, min_prob: float = 0.0
) -> DraftTree:
    """Return the likeliest `budget` paths, down to probability `min_prob`.

    `children` returns tokens after a path and their probabilities.
    """
    nodes: list[tuple[int, int, float]] = []
    # Probability of the path, negated; parent, probability of the token, tokens from the root.
    heap: list[tuple[float, int, float, tuple[int, ...]]] = []
    path: tuple[int, ...] = ()
    parent, path_prob = ROOT, 1.0
    while len(nodes) < budget:
        for token, prob in children(path):
            if path_prob * prob >= min_prob:
                heapq.heappush(heap, (-path_prob * prob, parent, prob, (*path, token)))
        if not heap:
            break
        cost, above, prob, path = heapq.heappop(heap)
        parent, path_prob = len(nodes), -cost
        nodes.append((path[-1], above, prob))
    return _tree(nodes)


def by_depth(rows: list[Row]) -> Callable[[tuple[int, ...]], Row]:
    """Return children for `grow` that depend on the length of the path alone."""
    return lambda path: rows[len(path)] if len(path) < len(rows) else []


def grow_levels(
    first: Tensor,
    extend: Callable[[DraftTree, int], Tensor],
    budget: int,
    min_prob: float,
    depth: int = DEPTH,
) -> DraftTree:
    """Return EAGLE-2's dynamic tree (Li et al., 2024): the likeliest `budget` nodes of some levels.

    Args:
        first: (vocabulary,) log probabilities of the next token.
        extend: gets the tree of all extended nodes, and the number of its new nodes, which are last. It
            returns (new, vocabulary) log probabilities of what follows them.
    """
    nodes: list[tuple[int, int, float]] = []
    paths: list[float] = []
    extended: list[int] = []
    level, log_probs = [ROOT], first[None]
    for left in range(depth - 1, -1, -1):
        found = [
            ((paths[node] if node != ROOT else 1.0) * prob, (token, node, prob))
            for node, row in zip(level, ranked(log_probs), strict=True)
            for token, prob in row
        ]
        begin = len(nodes)
        # The sort is stable, so that the first of equal ones stays first.
        for path, new in sorted(found, key=lambda one: -one[0])[: max(WIDTH, budget)]:
            if path >= min_prob:
                nodes.append(new)
                paths.append(path)
        level = list(range(begin, min(begin + WIDTH, len(nodes))))
        if not level or not left:
            break
        extended += level
        log_probs = extend(_tree(nodes).of(extended), len(level))
    return _tree(nodes).pruned(budget)


def _tree(nodes: list[tuple[int, int, float]]) -> DraftTree:
    ids, parents, probs = zip(*nodes, strict=True) if nodes else ((), (), ())
    return DraftTree(ids, parents, probs, ((),) * len(ids))


def log_softmax(logits: Tensor) -> Tensor:
    """Return log probabilities in float32."""
    return torch.log_softmax(logits.float(), -1)
