"""Trees hold the likeliest paths with the head's own probabilities, whichever way they grow."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache

import hypothesis.strategies as st
import pytest
import torch
from crossspec_lab.heads.growing import Ranked, grow_by_depth, grow_dynamic
from hypothesis import given, settings
from torch import Tensor

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


Text = tuple[int, ...]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**31 - 1), st.integers(1, 2), st.integers(0, 30), st.sampled_from([0.0, 0.05, 0.3]))
def test_the_likeliest_nodes_stay_with_their_probabilities(
    seed: int, depth: int, budget: int, worth: float
) -> None:
    @cache
    def following(text: Text) -> Tensor:
        torch.manual_seed(hash((seed, text)) % 2**31)
        return (3 * torch.randn(5)).log_softmax(-1)

    asked: list[Text] = []

    def extend(tokens: Sequence[int], parents: Sequence[int]) -> Tensor:
        texts = [(*(asked[p] if p >= 0 else ()), t) for t, p in zip(tokens, parents, strict=True)]
        asked.extend(texts)
        return torch.stack([following(text) for text in texts])

    guess = grow_dynamic(following(()), extend, budget, worth, depth)
    found: dict[Text, float] = {(): 1.0}
    for token, parent, prob in zip(guess.token_ids, guess.parents, guess.probs, strict=True):
        text, before = list(found.items())[parent + 1]
        found[(*text, token)] = before * prob
    del found[()]
    every = {
        text: float(sum(following(text[:d])[t] for d, t in enumerate(text)).exp())  # type: ignore[union-attr]
        for n in range(1, depth + 1)
        for text in itertools.product(range(5), repeat=n)
    }
    assert len(found) == len(guess.token_ids)
    assert found == pytest.approx({text: every[text] for text in found}, rel=1e-4)
    likeliest = sorted((prob for prob in every.values() if prob >= worth), reverse=True)[:budget]
    assert sorted(found.values(), reverse=True) == pytest.approx(likeliest, abs=1e-5)
