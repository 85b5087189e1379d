"""Trees hold the likeliest paths with the head's own probabilities, however they grow."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache

import hypothesis.strategies as st
import pytest
import torch
from crossspec_lab.heads.growing import by_depth, grow, grow_levels, ranked
from hypothesis import given, settings
from torch import Tensor

from crossspec_ros.engine.tree import DraftTree

Path = tuple[int, ...]
SEEDS, BUDGETS, MIN_PROBS = st.integers(0, 2**31 - 1), st.integers(0, 30), st.sampled_from([0.0, 0.05, 0.3])


def check(
    tree: DraftTree, log_probs: Callable[[Path], Tensor], depth: int, budget: int, min_prob: float
) -> None:
    """Compare a tree with all paths, from the log probabilities after each path."""
    every = {
        path: math.exp(sum(float(log_probs(path[:d])[token]) for d, token in enumerate(path)))
        for n in range(1, depth + 1)
        for path in itertools.product(range(5), repeat=n)
    }
    paths = [tuple(tree.token_ids[node] for node in tree.path(i)) for i in range(len(tree))]
    assert len(set(paths)) == len(paths)
    assert tree.path_probs() == pytest.approx([every[path] for path in paths], rel=1e-4)
    likeliest = sorted((prob for prob in every.values() if prob >= min_prob), reverse=True)[:budget]
    assert sorted(tree.path_probs(), reverse=True) == pytest.approx(likeliest, abs=1e-5)


@settings(deadline=None, max_examples=40)
@given(SEEDS, st.integers(1, 4), BUDGETS, MIN_PROBS)
def test_tree_by_depth_has_the_likeliest_paths(seed: int, depth: int, budget: int, min_prob: float) -> None:
    torch.manual_seed(seed)
    rows = (3 * torch.randn(depth, 5)).log_softmax(-1)
    tree = grow(by_depth(ranked(rows)), budget, min_prob)
    check(tree, lambda path: rows[len(path)], depth, budget, min_prob)


@settings(deadline=None, max_examples=40)
@given(SEEDS, st.integers(1, 2), BUDGETS, MIN_PROBS)
def test_tree_by_levels_has_the_likeliest_paths(seed: int, depth: int, budget: int, min_prob: float) -> None:
    @cache
    def following(path: Path) -> Tensor:
        torch.manual_seed(hash((seed, path)) % 2**31)
        return (3 * torch.randn(5)).log_softmax(-1)

    def extend(tree: DraftTree, new: int) -> Tensor:
        paths = [tuple(tree.token_ids[node] for node in tree.path(i)) for i in range(len(tree))]
        return torch.stack([following(path) for path in paths[-new:]])

    tree = grow_levels(following(()), extend, budget, min_prob, depth)
    check(tree, following, depth, budget, min_prob)
