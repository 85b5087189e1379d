"""Prompt lookup proposes what followed the latest of the longest matches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from crossspec_lab.baselines.prompt_lookup import PromptLookup

from crossspec_ros.drafting.proposer import Context


@pytest.mark.parametrize(
    ("response", "question", "proposed"),
    [
        # (1, 2) is followed by 5 in the question and by 6 in the response; (9, 1, 2) only by 5.
        ((1, 2, 6, 7, 1, 2), (9, 1, 2, 5), (6, 7)),
        ((1, 2, 6, 9, 1, 2), (9, 1, 2, 5), (5, 1)),
        ((1, 2, 3), (), ()),
        ((), (), ()),
    ],
)
def test_longest_match_wins_and_then_the_latest(
    response: tuple[int, ...], question: tuple[int, ...], proposed: tuple[int, ...]
) -> None:
    target: Any = SimpleNamespace(prompt_ids=lambda text: ((), question))
    assert PromptLookup(target).propose(Context("?", response), 2, 0.0).token_ids == proposed
