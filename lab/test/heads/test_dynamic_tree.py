"""EAGLE-2's dynamic tree has the head's own probabilities, and the likeliest paths."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache

import hypothesis.strategies as st
import torch
from crossspec_lab.heads.dynamic_tree import grow_dynamic
from hypothesis import given, settings
from torch import Tensor

from crossspec_ros.drafting.heads.head import Guess


def paths(guess: Guess) -> dict[tuple[int, ...], float]:
    """Each node as its tokens from the root, and its path's probability."""
    found: dict[int, tuple[tuple[int, ...], float]] = {-1: ((), 1.0)}
    for i, (token, parent, prob) in enumerate(zip(guess.ids, guess.parents, guess.probs, strict=True)):
        assert parent < i
        tokens, before = found[parent]
        found[i] = (*tokens, token), before * prob
    del found[-1]
    assert len({tokens for tokens, _ in found.values()}) == len(found)
    return dict(found.values())


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**31 - 1), st.integers(1, 3), st.integers(0, 30), st.sampled_from([0.0, 0.05, 0.3]))
def test_level_by_level_each_node_is_as_likely_as_the_head_says(
    seed: int, depth: int, budget: int, worth: float
) -> None:
    @cache
    def following(tokens: tuple[int, ...]) -> Tensor:
        torch.manual_seed(hash((seed, tokens)) % 2**31)
        return (3 * torch.randn(5)).log_softmax(-1)

    asked: list[tuple[int, ...]] = []

    def extend(tokens: Sequence[int], parents: Sequence[int]) -> Tensor:
        begin = len(asked)
        asked.extend((*(asked[p] if p >= 0 else ()), t) for t, p in zip(tokens, parents, strict=True))
        return torch.stack([following(text) for text in asked[begin:]])

    found = paths(grow_dynamic(following(()), extend, budget, worth, depth))
    every = {
        tokens: math.exp(sum(float(following(tokens[:d])[t]) for d, t in enumerate(tokens)))
        for n in range(1, depth + 1)
        for tokens in itertools.product(range(5), repeat=n)
    }
    assert len(found) <= budget and max(map(len, found), default=0) <= depth
    assert all(math.isclose(every[tokens], prob, rel_tol=1e-4) for tokens, prob in found.items())
    assert all(prob >= worth * 0.999 for prob in found.values())
    # Ten nodes of a level are extended, which is all that matters in the first three.
    if depth <= 2:
        likeliest = sorted((p for p in every.values() if p >= worth), reverse=True)[:budget]
        got = torch.tensor(sorted(found.values(), reverse=True))
        assert torch.allclose(got, torch.tensor(likeliest), atol=1e-5)
