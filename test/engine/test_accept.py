"""The greedy path through a draft tree."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from crossspec_ros.engine.accept import agreement, greedy_path
from crossspec_ros.engine.tree import ROOT, DraftTree

VOCAB = 4


def tree_of(*nodes: tuple[int, int]) -> DraftTree:
    """The tree of these (parent, token) pairs."""
    parents, tokens = zip(*nodes, strict=True) if nodes else ((), ())
    return DraftTree(tokens, parents, (0.5,) * len(nodes), (("test",),) * len(nodes))


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    """Trees with siblings that are alike and ids out of the vocabulary."""
    size = draw(st.integers(0, 10))
    return tree_of(*((draw(st.integers(ROOT, i - 1)), draw(st.integers(-1, VOCAB))) for i in range(size)))


def one_by_one(tree: DraftTree, choices: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """The greedy path as plain decoding would find it: token by token, with all nodes that still agree."""
    path: list[int] = []
    last, token = ROOT, choices[0]
    for i in range(len(tree)):
        if tree.parents[i] == last and tree.token_ids[i] == token:
            path.append(i)
            last, token = i, choices[i + 1]
    return tuple(path), token


@given(trees(), st.data())
def test_the_path_is_that_of_decoding_token_by_token(tree: DraftTree, data: st.DataObject) -> None:
    size = len(tree) + 1
    choices = data.draw(st.lists(st.integers(0, VOCAB - 1), min_size=size, max_size=size))
    assert greedy_path(tree, choices) == one_by_one(tree, choices)


@given(st.lists(st.integers(0, 1)), st.data())
def test_a_chain_is_accepted_as_far_as_it_agrees(draft: list[int], data: st.DataObject) -> None:
    size = len(draft) + 1
    choices = data.draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
    kept = agreement(draft, choices)
    tree = DraftTree.chain(draft, [0.5] * len(draft), "test")
    assert greedy_path(tree, choices) == (tuple(range(kept)), choices[kept])


def test_without_a_draft_the_target_speaks_alone() -> None:
    assert greedy_path(DraftTree(), [7]) == ((), 7)


def test_a_later_branch_is_found_and_each_node_asks_for_its_own_choice() -> None:
    tree = tree_of((ROOT, 1), (ROOT, 2), (0, 3), (1, 3), (1, 4), (4, 5))
    assert greedy_path(tree, [2, 9, 4, 9, 9, 6, 8]) == ((1, 4), 6)
    assert greedy_path(tree, [2, 9, 4, 9, 9, 5, 8]) == ((1, 4, 5), 8)
    assert greedy_path(tree, [3, 9, 4, 9, 9, 5, 8]) == ((), 3)


def test_the_first_of_two_siblings_that_are_alike_is_followed() -> None:
    tree = tree_of((ROOT, 1), (ROOT, 1), (1, 2))
    assert greedy_path(tree, [1, 2, 2, 3]) == ((0,), 2)


def test_ids_out_of_the_vocabulary_are_never_accepted() -> None:
    assert greedy_path(tree_of((ROOT, -1), (ROOT, 10**9), (ROOT, 0)), [0, 5, 6, 7]) == ((2,), 7)
