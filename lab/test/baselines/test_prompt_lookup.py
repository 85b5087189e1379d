"""Prompt lookup proposes what followed the latest of the longest matches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from crossspec_lab.baselines.prompt_lookup import PromptLookup

from crossspec_ros.drafting.proposer import Context


@pytest.mark.parametrize(
    ("said", "asked", "proposed"),
    [
        # (1, 2) is followed by 5 in the question and by 6 in the response; (9, 1, 2) only by 5.
        ((1, 2, 6, 7, 1, 2), (9, 1, 2, 5), (6, 7)),
        ((1, 2, 6, 9, 1, 2), (9, 1, 2, 5), (5, 1)),
        ((1, 2, 3), (), ()),
        ((), (), ()),
    ],
)
def test_the_longest_match_wins_and_of_equal_ones_the_latest(
    said: tuple[int, ...], asked: tuple[int, ...], proposed: tuple[int, ...]
) -> None:
    target: Any = SimpleNamespace(prompt_ids=lambda question: ((), asked))
    assert PromptLookup(target).propose(Context("?", said), 2, 0.0).token_ids == proposed
