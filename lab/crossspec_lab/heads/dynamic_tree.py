"""EAGLE-2's dynamic draft tree, grown level by level."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch import Tensor

from crossspec_ros.engine.tree import DraftTree

Extend = Callable[[Sequence[int], Sequence[int]], Tensor]

WIDTH = 10
"""Nodes that are extended in each level, and children of each; as in EAGLE-2."""
DEPTH = 7
"""Levels of the tree, as in EAGLE-2."""


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
