"""Trees hold the likeliest paths, whichever way they grow."""

from __future__ import annotations

import itertools
import math

import hypothesis.strategies as st
import torch
from crossspec_lab.heads.growing import Ranked, grow_by_depth
from hypothesis import given, settings

from crossspec_ros.engine.tree import DraftTree


def paths(guess: DraftTree) -> dict[tuple[int, ...], float]:
    """Each node as its tokens from the root, and its path's probability."""
    found: dict[int, tuple[tuple[int, ...], float]] = {-1: ((), 1.0)}
    for i, (token, parent, prob) in enumerate(zip(guess.token_ids, guess.parents, guess.probs, strict=True)):
        assert parent < i
        tokens, before = found[parent]
        found[i] = (*tokens, token), before * prob
    del found[-1]
    assert len({tokens for tokens, _ in found.values()}) == len(found)
    return dict(found.values())


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**31 - 1), st.integers(1, 4), st.integers(0, 30), st.sampled_from([0.0, 0.05, 0.3]))
def test_by_depth_the_likeliest_paths_are_taken(seed: int, depth: int, budget: int, worth: float) -> None:
    torch.manual_seed(seed)
    log_probs = (3 * torch.randn(depth, 5)).log_softmax(-1)
    every = {
        tokens: math.exp(sum(float(log_probs[d, t]) for d, t in enumerate(tokens)))
        for n in range(1, depth + 1)
        for tokens in itertools.product(range(5), repeat=n)
    }
    likeliest = sorted((p for p in every.values() if p >= worth), reverse=True)[:budget]
    found = paths(grow_by_depth(Ranked.of(log_probs), budget, worth))
    assert torch.allclose(
        torch.tensor(sorted(found.values(), reverse=True)), torch.tensor(likeliest), atol=1e-5
    )
    assert all(math.isclose(every[tokens], prob, rel_tol=1e-4) for tokens, prob in found.items())
