"""The policy takes the size that pays, asks only whom it pays to ask, and believes what it has seen."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from draft_trees import trees
from hypothesis import given
from hypothesis import strategies as st
from plain_target import Guess

from crossspec_ros.drafting.policy import Calibration, Limits, Policy
from crossspec_ros.drafting.proposer import Context, PassResult
from crossspec_ros.engine.pass_cost import PassCost
from crossspec_ros.engine.tree import ROOT, DraftTree

CONTEXT = Context("what?")
FLAT = {1: 1.0, 128: 1.0}
STEEP = {1: 1.0, 128: 128.0}


def chain(probs: list[float]) -> DraftTree:
    return DraftTree.chain(list(range(10, 10 + len(probs))), probs, "guess")


def policy(tree: DraftTree, seconds: dict[int, float] | None, nodes: int = 64) -> Policy:
    cost = PassCost(seconds) if seconds else None
    return Policy((Guess(lambda context: tree),), cost, Limits(max_nodes=nodes))


@given(trees("guess"), st.floats(0.0, 1.0), st.integers(1, 40))
def test_the_size_is_the_one_with_most_expected_tokens_per_second(
    tree: DraftTree, slope: float, unread: int
) -> None:
    seconds = {1: 1.0, 128: 1.0 + slope * 127}
    tree = DraftTree.merged([tree])
    any_prob = Policy((Guess(lambda context: tree),), PassCost(seconds), Limits(least_prob=0.0))
    got = any_prob.propose(CONTEXT, unread, 100)
    paths = sorted(tree.path_probs(), reverse=True)
    rates = [(1 + sum(paths[:n])) / (1 + slope * (unread + n - 1)) for n in range(len(tree) + 1)]
    assert rates[len(got)] == pytest.approx(max(rates))
    assert sum(got.path_probs()) == pytest.approx(sum(paths[: len(got)]))


def test_where_passes_cost_the_same_all_is_verified_and_where_tokens_cost_as_much_nothing_is() -> None:
    tree = chain([0.5] * 8)
    assert len(policy(tree, FLAT).propose(CONTEXT, 1, 100)) == 8
    assert len(policy(tree, STEEP).propose(CONTEXT, 1, 100)) == 0
    assert len(policy(tree, None).propose(CONTEXT, 1, 100)) == 8
    assert len(policy(tree, None, nodes=3).propose(CONTEXT, 1, 100)) == 3
    assert len(Policy((), None).propose(CONTEXT, 1, 100)) == 0


@pytest.mark.parametrize("left", [1, 2, 5])
def test_no_node_is_deeper_than_the_response_may_grow(left: int) -> None:
    assert len(policy(chain([0.9] * 8), None).propose(CONTEXT, 1, left)) == left - 1


def test_proposals_are_merged_and_everyone_hears_what_became_of_them() -> None:
    guesses = [Guess(lambda context: chain([0.5, 0.5])), Guess(lambda context: chain([0.7]))]
    guesses[1].name = "other"
    both = Policy(guesses, None)
    tree = both.propose(CONTEXT, 1, 100)
    assert len(tree) == 2
    outcome = PassResult(CONTEXT, tree, (0,), (10, 99), False)
    both.observe(outcome)
    assert guesses[0].results == guesses[1].results == [outcome]
    assert set(both.calibrations()) == {"guess", "other"}


def test_only_who_may_draft_is_asked_but_everyone_hears_and_limits_hold_from_the_next_pass_on() -> None:
    guesses = [Guess(lambda context: chain([0.5, 0.5])), Guess(lambda context: chain([0.7] * 4))]
    guesses[1].name = "other"
    both = Policy(guesses, None, Limits(proposers=("other",)))
    tree = both.propose(CONTEXT, 1, 100)
    assert tree.probs == (0.7,) * 4
    sizes = {Limits(3): 3, Limits(0): 0, Limits(proposers=()): 0, Limits(least_prob=0.4): 2, Limits(): 4}
    for limits, nodes in sizes.items():
        both.limits = limits
        assert len(both.propose(CONTEXT, 1, 100)) == nodes
    both.observe(PassResult(CONTEXT, tree, (), (99,), False))
    assert len(guesses[0].results) == len(guesses[1].results) == 1


def test_a_source_that_is_always_wrong_is_believed_less_and_less() -> None:
    boaster = policy(chain([0.9, 0.9]), {1: 1.0, 128: 10.0})
    first = boaster.propose(CONTEXT, 1, 100)
    assert len(first) == 2
    for _ in range(100):
        tree = boaster.propose(CONTEXT, 1, 100)
        boaster.observe(PassResult(CONTEXT, tree, (), (99,), False))
    assert len(boaster.propose(CONTEXT, 1, 100)) == 0
    (predicted, taken, seen) = boaster.calibrations()["guess"][0]
    assert predicted == pytest.approx(0.9) and taken == 0 and seen >= 6


@pytest.mark.parametrize("draft", [DraftTree(), chain([0.9])], ids=["nothing", "always wrong"])
def test_a_slow_source_without_gain_is_asked_seldom(draft: DraftTree) -> None:
    asked = []

    def slow(context: Context) -> DraftTree:
        asked.append(1)
        time.sleep(0.005)
        return draft

    policy = Policy((Guess(slow),), PassCost({1: 0.01, 128: 0.02}))
    for _ in range(60):
        tree = policy.propose(CONTEXT, 1, 100)
        policy.observe(PassResult(CONTEXT, tree, (), (99,), False))
    # It is asked again now and then.
    assert 2 < len(asked) < 25


@pytest.mark.parametrize("fault", [RuntimeError("CUDA error"), float("nan"), 1.5])
def test_a_source_that_fails_rests_and_costs_no_caption(fault: Any) -> None:
    asked = []

    def broken(context: Context) -> DraftTree:
        asked.append(1)
        if isinstance(fault, Exception):
            raise fault
        return chain([fault])

    sound = Guess(lambda context: replace(chain([0.5]), sources=(("sound",),)))
    sound.name = "sound"
    both = Policy((Guess(broken), sound), None)
    for window in range(10):
        both.start(window)
        tree = both.propose(CONTEXT, 1, 100)
        assert tree.token_ids == (10,) and tree.sources == (("sound",),)
        both.observe(PassResult(CONTEXT, tree, (0,), (10, 99), False))
    assert len(asked) == 1


def test_a_slow_source_is_asked_where_a_quick_one_is_silent() -> None:
    """Where the memory goes on, the head is spared; where it does not, the head drafts."""
    asked: list[bool] = []

    def slow(context: Context) -> DraftTree:
        asked.append(bool(len(context.tokens) % 2))
        time.sleep(0.001)
        return chain([0.9] * 6)

    memory = Guess(lambda context: chain([0.9] * 6) if len(context.tokens) % 2 else DraftTree())
    head = Guess(slow)
    memory.name, head.name = "memory", "head"
    # The head takes 1 ms, a pass so much more that a busy machine changes nothing.
    both = Policy((head, memory), PassCost({1: 20e-3, 128: 30e-3}))
    rounds = 400
    for i in range(rounds):
        context = replace(CONTEXT, tokens=(7,) * (2 + i % 2))
        tree = both.propose(context, 1, 100)
        tree = replace(tree, sources=(("head", "memory") if i % 2 else ("head",),) * len(tree))
        both.observe(PassResult(context, tree, tuple(range(len(tree))), (*tree.token_ids, 99), False))
    assert asked.count(False) == rounds / 2
    assert asked.count(True) < rounds / 4


def test_an_event_draft_pays_while_it_adds_tokens_and_is_tried_again_where_it_did_not() -> None:
    drafts = Guess(lambda context: chain([0.9] * 3))
    drafts.needs = frozenset({"events"})  # type: ignore[misc]
    context = replace(CONTEXT, draft_tokens=(10, 11, 12))

    def answers(count: int, accepted: int) -> list[bool]:
        paid = []
        for _ in range(count):
            paid.append(judge.draft_pays())
            for _ in range(10):
                tree = judge.propose(context, 1, 100)
                judge.observe(
                    PassResult(context, tree, tuple(range(accepted)), (*range(10, 10 + accepted), 99), False)
                )
        return paid

    judge = Policy((drafts,), None)
    assert all(answers(8, accepted=3))
    useless = answers(40, accepted=0)
    assert not any(useless[8:15]) and 2 <= sum(useless[8:]) <= 3
    # One answer in sixteen shows that it is of use again.
    assert all(answers(60, accepted=3)[-10:])


def test_calibration_learns_the_observed_rate_at_the_nodes_that_were_reached() -> None:
    calibration, rng = Calibration(), np.random.default_rng(0)
    tree = DraftTree((1, 2, 3), (ROOT, ROOT, 0), (0.6, 0.3, 0.9), (("a",),) * 3)
    for _ in range(3000):
        first = 1 if rng.random() < 0.3 else 7
        calibration.observe(tree, (first, 3 if rng.random() < 0.45 else 8))
    right = calibration.apply(tree).probs
    assert right == pytest.approx((0.3, 0.0, 0.45), abs=0.05)
    # The last node is judged only where its parent was taken.
    assert [seen for _, _, seen in calibration.table()] == pytest.approx([3000, 3000, 900], rel=0.1)


def test_costs_are_interpolated_and_follow_what_passes_take() -> None:
    cost = PassCost({1: 1.0, 3: 2.0, 5: 6.0})
    assert cost.seconds(np.array([1, 2, 4, 5, 10])).tolist() == [1.0, 1.5, 4.0, 6.0, 12.0]
    for _ in range(400):
        cost.observe(3, 4.0)
        cost.observe(5, 1e9 if _ == 7 else 6.0)
    assert cost.seconds(3) == pytest.approx(4.0, rel=0.02)
    assert cost.seconds(5) == pytest.approx(6.0, rel=0.05) and cost.seconds(1) == 1.0


def test_a_proposal_is_judged_once() -> None:
    once = policy(chain([0.5]), {1: 1.0, 128: 1.0})
    tree = once.propose(CONTEXT, 1, 100)
    once.observe(PassResult(CONTEXT, tree, (), (99,), False))
    # With one token left nothing is proposed, and nothing learned of what was proposed before.
    once.observe(PassResult(CONTEXT, once.propose(CONTEXT, 1, 1), (), (10,), True))
    assert [seen for _, _, seen in once.calibrations()["guess"]] == [1]


class Living(Guess):
    """Records the calls of the policy."""

    def __init__(self) -> None:
        super().__init__(lambda context: chain([0.5]))
        self.life: list[str] = []

    def start(self, window: int) -> None:
        self.life.append(f"start {window}")

    def prepare(self, context: Context, budget: int, worth: float) -> bool:
        self.life.append("prepare")
        return self.life.count("prepare") < 2

    def finish(self) -> None:
        self.life.append("finish")


def test_proposers_live_with_the_window() -> None:
    one, other = Living(), Living()
    other.name = "other"
    both = Policy((one, other), None, Limits(proposers=("guess",)))
    both.start(7)
    assert both.prepare(CONTEXT) and not both.prepare(CONTEXT)
    both.finish()
    assert one.life == ["start 7", "prepare", "prepare", "finish"] and other.life == ["start 7", "finish"]


def asked_about(need: str) -> tuple[Policy, list[Context]]:
    """Return a policy whose proposer has this need, and the contexts about which it is asked."""
    contexts: list[Context] = []
    needy = Guess(lambda context: (contexts.append(context), chain([0.5]))[1])
    needy.needs = frozenset({need})
    return Policy((needy,), None), contexts


def test_proposer_is_asked_only_with_its_inputs() -> None:
    policy, contexts = asked_about("events")
    assert len(policy.propose(CONTEXT, 1, 100)) == 0 and not contexts
    drafted = replace(CONTEXT, draft_tokens=(4,), draft_probs=(0.5,))
    assert len(policy.propose(drafted, 1, 100)) == 1 and contexts == [drafted]


def test_rehearsal_has_no_hidden_states() -> None:
    """The policy observes each pass of an answer, and none of a rehearsal."""
    policy, contexts = asked_about("hidden")
    second = replace(CONTEXT, tokens=(4,))
    policy.start(1)
    policy.propose(CONTEXT, 1, 100)
    policy.propose(second, 1, 100)
    assert not contexts
    policy.observe(PassResult(CONTEXT, DraftTree(), (), (4,), False))
    policy.propose(second, 1, 100)
    assert contexts == [second]
    policy.start(2)
    policy.propose(second, 1, 100)
    assert contexts == [second]
