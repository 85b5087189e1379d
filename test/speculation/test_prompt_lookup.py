"""Prompt lookup: which chain it finds, and how sure it is of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crossspec_ros.speculation.prompt_lookup import PromptLookup
from crossspec_ros.speculation.proposer import Context, Outcome
from crossspec_ros.speculation.tree import DraftTree

TOKENS = st.lists(st.integers(0, 3), max_size=12).map(tuple)


def test_the_longest_match_wins_and_of_equal_ones_the_latest() -> None:
    lookup = PromptLookup()
    # (1, 2) is followed by 5 in the question and by 6 in the response; (9, 1, 2) only by 5.
    assert lookup.propose(Context("?", (1, 2, 6, 7, 1, 2), (9, 1, 2, 5)), 2).token_ids == (6, 7)
    assert lookup.propose(Context("?", (1, 2, 6, 9, 1, 2), (9, 1, 2, 5)), 2).token_ids == (5, 1)


def test_nothing_is_guessed_where_nothing_repeats() -> None:
    assert PromptLookup().propose(Context("?", (1, 2, 3)), 8) == DraftTree()
    assert PromptLookup().propose(Context("?"), 8) == DraftTree()


def test_it_learns_how_often_it_is_right() -> None:
    lookup, context = PromptLookup(), Context("?", (1, 2, 3, 1))
    before = lookup.propose(context, 1).probs[0]
    lookup.observe(Outcome(context, DraftTree(), (), (2, 3), False))
    right = lookup.propose(context, 1).probs[0]
    lookup.observe(Outcome(context, DraftTree(), (), (9,), False))
    assert before < right and lookup.propose(context, 1).probs[0] < right


@given(TOKENS, TOKENS, TOKENS, st.integers(0, 6))
def test_it_is_a_chain_within_the_budget(
    prompt: tuple[int, ...], tokens: tuple[int, ...], new: tuple[int, ...], budget: int
) -> None:
    lookup, context = PromptLookup(), Context("?", tokens, prompt)
    for _ in range(2):
        tree = lookup.propose(context, budget)
        assert len(tree) <= budget and tree.parents == tuple(range(-1, len(tree) - 1))
        assert all(0 < prob <= 1 for prob in tree.probs)
        lookup.observe(Outcome(context, tree, (), new, False))
