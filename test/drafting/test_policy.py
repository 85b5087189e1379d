"""The policy chooses the optimal size, uses profitable proposers, and calibrates their probabilities."""

from __future__ import annotations

import time
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from draft_trees import trees
from hypothesis import given
from hypothesis import strategies as st
from plain_target import Guess

from crossspec_ros.drafting.calibration import Calibration
from crossspec_ros.drafting.policy import DEFAULT_LIMITS, PROBE_EVERY, Limits, Policy
from crossspec_ros.drafting.proposer import Context, Draft, PassResult, Proposer
from crossspec_ros.engine.pass_cost import PassCost
from crossspec_ros.engine.tree import ROOT, DraftTree
from crossspec_ros.settings import EVENT_DRAFT

CONTEXT = Context("what?")
LATER = replace(CONTEXT, tokens=(7, 7))
FLAT = {1: 1.0, 128: 1.0}
STEEP = {1: 1.0, 128: 128.0}


def chain(*probs, name="guess"):
    return DraftTree.chain(range(10, 10 + len(probs)), probs, name)


class Recorder(Guess):
    """Proposes a tree after a delay, and records the contexts."""

    def __init__(self, tree, name="guess", delay_s=0.0):
        super().__init__(self._propose)
        self.tree, self.name, self.delay_s = tree, name, delay_s
        self.contexts = []

    def _propose(self, context):
        self.contexts.append(context)
        time.sleep(self.delay_s)
        return self.tree


def policy(tree, seconds, limits=DEFAULT_LIMITS):
    return Policy((Recorder(tree),), PassCost(seconds) if seconds else None, limits)


def run(judge, passes, accepted=0, context=CONTEXT):
    """Run passes in which the target accepts the first nodes of the tree; return the last tree."""
    for _ in range(passes):
        tree = judge.propose(context, 1, 100)
        path = tuple(range(min(accepted, len(tree))))
        judge.observe(PassResult(context, tree, path, (*tree.token_ids[: len(path)], 99), False))
    return tree


@given(trees("guess"), st.floats(0.0, 1.0), st.integers(1, 40))
def test_size_maximises_expected_tokens_per_second(tree, slope, unread):
    tree = DraftTree.merged([tree])
    got = policy(tree, {1: 1.0, 128: 1.0 + slope * 127}, Limits(least_prob=0.0)).propose(CONTEXT, unread, 100)
    paths = sorted(tree.path_probs(), reverse=True)
    rates = [(1 + sum(paths[:n])) / (1 + slope * (unread + n - 1)) for n in range(len(tree) + 1)]
    assert rates[len(got)] == pytest.approx(max(rates))
    assert sum(got.path_probs()) == pytest.approx(sum(paths[: len(got)]))


@pytest.mark.parametrize(
    ("seconds", "limits", "left", "nodes"),
    [
        (FLAT, Limits(), 100, 4),
        (STEEP, Limits(), 100, 0),
        (None, Limits(), 100, 4),
        (None, Limits(), 3, 2),
        (None, Limits(), 1, 0),
        (None, Limits(3), 100, 3),
        (None, Limits(0), 100, 0),
        (None, Limits(least_prob=0.4), 100, 1),
        (None, Limits(proposers=()), 100, 0),
        (None, Limits(proposers=("guess",)), 100, 4),
    ],
)
def test_costs_and_limits_bound_a_tree(seconds, limits, left, nodes):
    judge = policy(chain(0.5, 0.5, 0.5, 0.5), seconds)
    judge.limits = limits
    assert len(judge.propose(CONTEXT, 1, left)) == nodes
    assert judge.has("guess") == (limits.proposers != ())
    judge.rest("guess", RuntimeError())
    assert not judge.has("guess")


def test_proposals_are_merged_and_all_proposers_observe():
    guesses = Recorder(chain(0.5, 0.5)), Recorder(chain(0.7, name="other"), "other")
    both = Policy(guesses, None)
    assert run(both, 1, 1).probs == (0.7, 0.5)
    both.limits = Limits(proposers=("other",))
    assert run(both, 1, 1).sources == (("other",),)
    assert [len(one.results) for one in guesses] == [2, 2]
    assert [one.calibration.counts[0].sum() for one in both.sources] == [2, 2]


def test_wrong_proposer_loses_probability():
    judge = policy(chain(0.9, 0.9), {1: 1.0, 128: 10.0})
    assert len(run(judge, 1)) == 2
    # With room for one token there is no proposal to learn from.
    judge.observe(PassResult(CONTEXT, judge.propose(CONTEXT, 1, 1), (), (10,), True))
    assert judge.sources[0].calibration.counts.sum(1).tolist() == [1, 0.9, 0]
    assert len(run(judge, 100)) == 0


@pytest.mark.parametrize(
    ("tree", "accepted", "seconds"),
    [
        (DraftTree(), 0, {1: 0.01, 128: 0.02}),
        (chain(0.9), 0, {1: 0.01, 128: 0.02}),
        # A node adds a token at a price of 0.8 tokens.
        (chain(0.99), 1, {1: 0.01, 2: 0.018, 128: 2.0}),
    ],
    ids=["empty", "always wrong", "price near gain"],
)
def test_unprofitable_proposer_is_only_probed(tree, accepted, seconds):
    slow = Recorder(tree, delay_s=0.005)
    run(Policy((slow,), PassCost(seconds)), 60, accepted)
    assert 2 < len(slow.contexts) < 25


def fail(*_):
    raise RuntimeError("CUDA error")


@pytest.mark.parametrize(
    "fault",
    [
        {"propose": fail},
        {"prepare": fail},
        {"observe": fail},
        {"tree": chain(np.nan)},
        {"tree": chain(1.5)},
        {"tree": DraftTree((7,), (3,), (0.5,), (("broken",),))},
        {"tree": DraftTree((7, 8), (-1,), (0.5,), (("broken",),))},
    ],
    ids=["propose", "prepare", "observe", "NaN probability", "probability above 1", "no parent", "lengths"],
)
def test_failed_proposer_rests_and_costs_no_caption(fault):
    broken, working = Recorder(chain(0.4), "broken"), Recorder(chain(0.5, name="working"), "working")
    vars(broken).update(fault)
    both = Policy((broken, working), None)
    calls = []
    for window in range(PROBE_EVERY + 2):
        both.start(window)
        both.prepare(CONTEXT)
        assert run(both, 2, 1).token_ids == (10,)
        calls.append(len(broken.contexts))
    assert len(set(calls[:PROBE_EVERY])) == 1 and len(working.contexts) == 2 * (PROBE_EVERY + 2)
    if "tree" in fault:
        assert calls[0] == 1 and calls[-1] == 2


def test_slow_proposer_runs_without_fast_draft():
    """A head does not draft where the memory has the continuation."""
    good = chain(*[0.9] * 6, name="memory")
    memory, head = Recorder(good, "memory"), Recorder(chain(*[0.9] * 6, name="head"), "head", 0.001)
    # A pass takes much longer than the head, so a busy machine does not change the result.
    both = Policy((memory, head), PassCost({1: 20e-3, 128: 30e-3}))
    for i in range(400):
        memory.tree = good if i % 2 else DraftTree()
        run(both, 1, 6, replace(LATER, question=str(i % 2)))
    calls = [context.question for context in head.contexts]
    assert calls.count("0") == 200 and calls.count("1") < 100


def test_calibration_learns_the_observed_rates():
    calibration, rng = Calibration(), np.random.default_rng(0)
    tree = DraftTree((1, 2, 3), (ROOT, ROOT, 0), (0.6, 0.3, 0.9), (("a",),) * 3)
    for _ in range(3000):
        first = 1 if rng.random() < 0.3 else 7
        calibration.observe(tree, (first, 3 if rng.random() < 0.45 else 8))
    assert calibration.apply(tree).probs == pytest.approx((0.3, 0.0, 0.45), abs=0.05)
    # The last node counts only if its parent is accepted.
    observed = calibration.counts[0]
    assert observed[observed > 0] == pytest.approx([3000, 3000, 900], rel=0.1)


def test_cost_interpolates_and_follows_passes():
    cost = PassCost({1: 1.0, 3: 2.0, 5: 6.0})
    assert cost.seconds(np.array([1, 2, 4, 5, 10])).tolist() == [1.0, 1.5, 4.0, 6.0, 12.0]
    for _ in range(400):
        cost.observe(3, 4.0)
        cost.observe(5, 1e9 if _ == 7 else 6.0)
    assert cost.seconds(3) == pytest.approx(4.0, rel=0.02)
    assert cost.seconds(5) == pytest.approx(6.0, rel=0.05) and cost.seconds(1) == 1.0


def test_allowed_proposers_prepare():
    allowed, other = Mock(Proposer), Mock(Proposer)
    allowed.name, other.name = "guess", "other"
    allowed.prepare.side_effect = [True, False]
    both = Policy((allowed, other), None, Limits(proposers=("guess",)))
    assert both.prepare(CONTEXT) and not both.prepare(CONTEXT)
    assert not other.method_calls


def test_proposer_without_inputs_is_skipped():
    proposer = Recorder(chain(0.5))
    proposer.is_ready = lambda context: bool(context.drafts)
    judge = Policy((proposer,), None)
    assert len(judge.propose(CONTEXT, 1, 100)) == 0
    assert len(judge.propose(replace(CONTEXT, drafts={EVENT_DRAFT: Draft()}), 1, 100)) == 1
