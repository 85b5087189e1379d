"""A draft tree is a set of paths: merging, pruning and cutting keep that, and a node sees its path alone."""

from __future__ import annotations

import numpy as np
from draft_trees import trees
from hypothesis import given
from hypothesis import strategies as st

from crossspec_ros.engine.tree import ROOT, DraftTree


def path(tree: DraftTree, node: int) -> tuple[int, ...]:
    tokens: list[int] = []
    while node != ROOT:
        tokens.insert(0, tree.token_ids[node])
        node = tree.parents[node]
    return tuple(tokens)


def paths(tree: DraftTree) -> list[tuple[int, ...]]:
    return [path(tree, node) for node in range(len(tree))]


@given(trees())
def test_depth_probability_and_sight_are_those_of_the_path(tree: DraftTree) -> None:
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
def test_merging_unites_the_paths_and_no_siblings_are_equal(a: DraftTree, b: DraftTree) -> None:
    merged = DraftTree.merged([a, b])
    assert sorted(paths(merged)) == sorted(set(paths(a)) | set(paths(b)))
    assert all(parent < i for i, parent in enumerate(merged.parents))
    for node, name in enumerate(merged.sources):
        mine = path(merged, node)
        assert set(name) == {s for s, tree in (("a", a), ("b", b)) if mine in paths(tree)}
        offers = [t.probs[i] for t in (a, b) for i in range(len(t)) if path(t, i) == mine]
        assert merged.probs[node] == max(offers)


@given(trees(), st.integers(0, 14))
def test_pruning_keeps_the_likeliest_nodes_and_their_ancestors(tree: DraftTree, budget: int) -> None:
    pruned = tree.pruned(budget)
    assert len(pruned) == min(budget, len(tree))
    assert all(parent < i for i, parent in enumerate(pruned.parents))
    best = sorted(tree.path_probs(), reverse=True)[: len(pruned)]
    assert np.allclose(sorted(pruned.path_probs(), reverse=True), best)
    rest = paths(tree)
    for one in paths(pruned):
        rest.remove(one)


@given(trees(), st.integers(0, 6))
def test_cutting_keeps_what_is_not_too_deep(tree: DraftTree, depth: int) -> None:
    cut = tree.cut(depth)
    assert paths(cut) == [one for one in paths(tree) if len(one) <= depth]


def test_a_chain_is_one_path() -> None:
    chain = DraftTree.chain([5, 6, 7], [0.5, 0.25, 1.0], "draft")
    assert paths(chain) == [(5,), (5, 6), (5, 6, 7)]
    assert chain.path_probs() == [0.5, 0.125, 0.125]
    assert chain.sources == (("draft",),) * 3
    assert len(DraftTree.chain([], [], "draft")) == 0
