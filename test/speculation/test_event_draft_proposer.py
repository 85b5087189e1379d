"""The event draft as a proposer: where it goes on, and how far it is believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossspec_ros.speculation.event_draft_proposer import EventDraftProposer
from crossspec_ros.speculation.proposer import Context, Outcome
from crossspec_ros.speculation.tree import DraftTree

TOKENS = st.lists(st.integers(0, 3), max_size=12).map(tuple)
DRAFT = (1, 2, 3, 9, 2, 3, 4)


@pytest.mark.parametrize(
    ("said", "follows"),
    [
        ((), DRAFT),
        ((1, 2), (3, 9, 2, 3, 4)),
        ((8, 3), (9, 2, 3, 4)),  # the 3 nearer to the second place
        ((8, 8, 8, 8, 3), (4,)),
        ((9, 9, 9, 9, 1, 2, 3), (9, 2, 3, 4)),  # the longer run, however far
        ((8, 8), ()),
        ((*DRAFT, 5), ()),
    ],
)
def test_it_goes_on_where_the_draft_is_nearest(said: tuple[int, ...], follows: tuple[int, ...]) -> None:
    assert EventDraftProposer().propose(Context("?", said, draft_tokens=DRAFT), 64).token_ids == follows


def test_its_own_probabilities_are_scaled_by_what_is_taken() -> None:
    proposer = EventDraftProposer()
    context = Context("?", draft_tokens=(1, 2, 3), draft_probs=(0.9, 0.9, 0.3))
    for _ in range(400):
        proposer.observe(Outcome(context, DraftTree(), (), (1, 7), True))
    first, _, third = proposer.propose(context, 3).probs
    assert first == pytest.approx(0.5, abs=0.05)
    assert third == pytest.approx(first / 3)
    anew = Context("?", (5, 1), draft_tokens=(1, 2, 3), draft_probs=(0.9, 0.9, 0.3))
    assert proposer.propose(anew, 1).probs[0] == pytest.approx(0.45)  # of these, nothing has been seen


@given(TOKENS, TOKENS, st.lists(st.floats(0, 1), max_size=12), TOKENS, st.integers(0, 6))
def test_it_is_a_chain_within_the_budget(
    tokens: tuple[int, ...], draft: tuple[int, ...], probs: list[float], new: tuple[int, ...], budget: int
) -> None:
    proposer = EventDraftProposer()
    context = Context("?", tokens, (), draft, tuple(probs[: len(draft)]))
    for _ in range(2):
        tree = proposer.propose(context, budget)
        assert len(tree) <= budget and tree.parents == tuple(range(-1, len(tree) - 1))
        assert all(0 < prob <= 1 for prob in tree.probs)
        proposer.observe(Outcome(context, tree, (), new, False))
