"""Draft trees: paths, masks, merging, pruning, and acceptance of the greedy path."""

from __future__ import annotations

import numpy as np
from draft_trees import alike_trees, trees
from hypothesis import given
from hypothesis import strategies as st

from crossspec_ros.engine.accept import agreement, greedy_path
from crossspec_ros.engine.tree import ROOT, DraftTree


def path(tree, node):
    tokens = []
    while node != ROOT:
        tokens.insert(0, tree.token_ids[node])
        node = tree.parents[node]
    return tuple(tokens)


def paths(tree):
    return [path(tree, node) for node in range(len(tree))]


@given(trees())
def test_nodes_have_depth_probability_mask_of_path(tree):
    mask = tree.mask()
    for node, (depth, prob) in enumerate(zip(tree.depths(), tree.path_probs(), strict=True)):
        above, product = node, 1.0
        ancestors = set()
        while above != ROOT:
            ancestors.add(above)
            product *= tree.probs[above]
            above = tree.parents[above]
        assert depth == len(ancestors)
        assert np.isclose(prob, product)
        assert set(np.flatnonzero(mask[node]).tolist()) == ancestors


@given(trees("a"), trees("b"))
def test_merge_unites_paths(a, b):
    merged = DraftTree.merged([a, b])
    assert sorted(paths(merged)) == sorted(set(paths(a)) | set(paths(b)))
    assert all(parent < i for i, parent in enumerate(merged.parents))
    for node, name in enumerate(merged.sources):
        mine = path(merged, node)
        assert set(name) == {s for s, tree in (("a", a), ("b", b)) if mine in paths(tree)}
        offers = [t.probs[i] for t in (a, b) for i in range(len(t)) if path(t, i) == mine]
        assert merged.probs[node] == max(offers)


@given(trees(), st.integers(0, 14))
def test_pruning_keeps_likeliest_nodes(tree, budget):
    pruned = tree.pruned(budget)
    assert len(pruned) == min(budget, len(tree))
    assert all(parent < i for i, parent in enumerate(pruned.parents))
    best = sorted(tree.path_probs(), reverse=True)[: len(pruned)]
    assert np.allclose(sorted(pruned.path_probs(), reverse=True), best)
    rest = paths(tree)
    for one in paths(pruned):
        rest.remove(one)


@given(trees(), st.integers(0, 6))
def test_cut_limits_depth(tree, depth):
    cut = tree.cut(depth)
    assert paths(cut) == [one for one in paths(tree) if len(one) <= depth]


@given(trees())
def test_likeliest_path_has_most_expected_tokens(tree):
    chosen = tree.likeliest_path()
    assert chosen.parents == tuple(range(ROOT, len(chosen) - 1))
    promised = [
        sum(DraftTree.chain(one, probs_of(tree, i), "a").path_probs()) for i, one in enumerate(paths(tree))
    ]
    assert np.isclose(sum(chosen.path_probs()), max(promised, default=0.0))
    assert not len(tree) or path(chosen, len(chosen) - 1) in paths(tree)


def probs_of(tree, node):
    return () if node == ROOT else (*probs_of(tree, tree.parents[node]), tree.probs[node])


def one_by_one(tree, choices):
    """Return the greedy path as plain decoding finds it, token by token."""
    path = []
    last, token = ROOT, choices[0]
    for i in range(len(tree)):
        if tree.parents[i] == last and tree.token_ids[i] == token:
            path.append(i)
            last, token = i, choices[i + 1]
    return tuple(path), token


@given(alike_trees(), st.data())
def test_greedy_path_equals_plain_decoding(tree, data):
    size = len(tree) + 1
    choices = data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    assert greedy_path(tree, choices) == one_by_one(tree, choices)


@given(st.lists(st.integers(0, 1)), st.data())
def test_chain_is_accepted_up_to_difference(draft, data):
    size = len(draft) + 1
    choices = data.draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
    kept = agreement(draft, choices)
    tree = DraftTree.chain(draft, [0.5] * len(draft), "test")
    assert greedy_path(tree, choices) == (tuple(range(kept)), choices[kept])


def test_within_drops_invalid_ids_and_descendants():
    tree = DraftTree((3, 9, 4, -1, 5), (ROOT, 0, 1, 0, 0), (0.5,) * 5, (("a",),) * 5)
    assert tree.within(9).token_ids == (3, 5) and tree.within(9).parents == (ROOT, 0)
