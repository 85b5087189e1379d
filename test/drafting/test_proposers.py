"""Proposers of drafts, and proposers by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossspec_ros.drafting.proposer import Context, Draft, make_proposers
from crossspec_ros.drafting.proposers.chain import ChainProposer
from crossspec_ros.settings import EVENT_DRAFT, REHEARSAL

TOKENS = st.lists(st.integers(0, 3), max_size=12).map(tuple)
DRAFT = (1, 2, 3, 9, 2, 3, 4)


def test_proposers_have_their_names_and_inputs():
    made = make_proposers()
    assert [one.name for one in made] == [REHEARSAL, "memory", EVENT_DRAFT, "grammar"]
    for drafts, ready in (
        ({}, ["memory"]),
        ({REHEARSAL: Draft()}, ["memory"]),
        ({EVENT_DRAFT: Draft((1,), (0.5,))}, ["memory", EVENT_DRAFT]),
    ):
        assert [one.name for one in made if one.is_ready(Context("?", drafts=drafts))] == ready


@pytest.mark.parametrize(
    ("verified", "follows"),
    [
        ((), DRAFT),
        ((1, 2), (3, 9, 2, 3, 4)),
        ((8, 3), (9, 2, 3, 4)),  # the 3 nearer to index 1
        ((8, 8, 8, 8, 3), (4,)),
        ((9, 9, 9, 9, 1, 2, 3), (9, 2, 3, 4)),  # the longer run, at any distance
        ((1, 8), (3, 9, 2, 3, 4)),  # 8 replaces the draft's 2
        ((1, 2, 3, 8, 8), (3, 4)),
        ((8, 8, 8), ()),
        ((*DRAFT, 5), ()),
    ],
)
def test_draft_continues_at_nearest_match(verified, follows):
    context = Context("?", verified, {EVENT_DRAFT: Draft(DRAFT, (0.9,) * len(DRAFT))})
    assert ChainProposer(EVENT_DRAFT).propose(context, 64, 0.0).token_ids == follows


@given(TOKENS, TOKENS, st.lists(st.floats(0.01, 1), min_size=12), st.integers(0, 6), st.floats(0, 1))
def test_draft_gives_a_chain_within_the_budget(tokens, draft, probs, budget, min_prob):
    context = Context("?", tokens, {EVENT_DRAFT: Draft(draft, tuple(probs[: len(draft)]))})
    tree = ChainProposer(EVENT_DRAFT).propose(context, budget, min_prob)
    assert len(tree) <= budget and tree.parents == tuple(range(-1, len(tree) - 1))
    assert all(0 < prob <= 1 for prob in tree.probs) and all(path >= min_prob for path in tree.path_probs())
    if len(tree):
        assert tree.token_ids in [draft[i : i + len(tree)] for i in range(len(draft))]
