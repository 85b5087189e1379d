"""EAGLE-2's dynamic tree has the head's own probabilities, and the likeliest paths."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache

import hypothesis.strategies as st
import pytest
import torch
from crossspec_lab.heads.dynamic_tree import grow_dynamic
from hypothesis import given, settings
from torch import Tensor

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
