"""Lookahead decoding: its two branches, and that it says what the target says."""

from __future__ import annotations

from collections.abc import Callable

import torch
from crossspec_lab.baselines.lookahead import COLUMNS, GRAM, Lookahead, _Branches
from crossspec_lab.baselines.one_shot import OneShot
from crossspec_lab.baselines.written import LIMIT, Written

from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.pair import ModelPair

WORDS = 30


def test_it_says_what_the_target_says_in_fewer_passes(
    pair: ModelPair, told: Callable[[OneShot], list[Written]]
) -> None:
    for written in told(Lookahead(pair)):
        assert len(written.accept_lengths) < 0.7 * len(written.tokens)


def counted(tree: DraftTree, last: int) -> torch.Tensor:
    """Logits of a target that says of each number the next."""
    return torch.eye(WORDS)[[(token + 1) % WORDS for token in (last, *tree.token_ids)]]


def test_a_target_that_counts_is_soon_foreseen() -> None:
    branches, said, lengths = _Branches(tuple(range(WORDS))), (), []
    window: list[int] = []
    while len(said) < LIMIT:
        tree = branches.guess(said)
        assert max(tree.depths(), default=0) < LIMIT - len(said) and len(tree) < 129
        window.append(tree.sources.count(("window",)))
        path, following = branches.accept(tree, counted(tree, (WORDS - 1, *said)[-1]), None)
        said += (*(tree.token_ids[node] for node in path), following)
        lengths.append(len(path) + 1)
    assert said == tuple(i % WORDS for i in range(LIMIT))
    # The window fills in the first passes.
    assert window[0] == COLUMNS + GRAM - 3 and set(window[GRAM - 2 : -4]) == {COLUMNS * (GRAM - 1) - 1}
    assert set(lengths[: GRAM - 1]) == {1} and lengths[GRAM:-1].count(GRAM) > len(lengths) / 2
