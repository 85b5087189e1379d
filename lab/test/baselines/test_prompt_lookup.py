"""Prompt lookup proposes what followed the latest of the longest matches."""

from __future__ import annotations

from crossspec_lab.baselines.prompt_lookup import PromptLookup

from crossspec_ros.drafting.proposer import Context
from crossspec_ros.engine.tree import DraftTree


def test_the_longest_match_wins_and_of_equal_ones_the_latest() -> None:
    lookup = PromptLookup()
    # (1, 2) is followed by 5 in the question and by 6 in the response; (9, 1, 2) only by 5.
    assert lookup.propose(Context("?", (1, 2, 6, 7, 1, 2), (9, 1, 2, 5)), 2, 0.0).token_ids == (6, 7)
    assert lookup.propose(Context("?", (1, 2, 6, 9, 1, 2), (9, 1, 2, 5)), 2, 0.0).token_ids == (5, 1)


def test_nothing_is_guessed_where_nothing_repeats() -> None:
    assert PromptLookup().propose(Context("?", (1, 2, 3)), 8, 0.0) == DraftTree()
    assert PromptLookup().propose(Context("?"), 8, 0.0) == DraftTree()


def test_longer_matches_are_told_apart_by_their_probability() -> None:
    lookup = PromptLookup()
    short = lookup.propose(Context("?", (1, 2, 3, 1)), 1, 0.0).probs[0]
    assert 0 < short < lookup.propose(Context("?", (1, 2, 3, 1, 2)), 1, 0.0).probs[0] < 1
