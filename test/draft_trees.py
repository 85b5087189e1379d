"""Random draft trees, and a scripted acceptance."""

from __future__ import annotations

import random

import torch
from hypothesis import strategies as st

from crossspec_ros.engine.tree import ROOT, DraftTree


@st.composite
def trees(draw: st.DrawFn, source: str = "a") -> DraftTree:
    """Draw a tree of up to 12 nodes over 4 tokens, which may have equal siblings."""
    n = draw(st.integers(0, 12))
    parents = tuple(draw(st.integers(ROOT, i - 1)) for i in range(n))
    tokens = tuple(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    probs = tuple(draw(st.lists(st.floats(0.01, 1.0), min_size=n, max_size=n)))
    return DraftTree(tokens, parents, probs, ((source,),) * n)


def tree_of(*nodes: tuple[int, int]) -> DraftTree:
    """Return the tree of these (parent, token) pairs."""
    parents, tokens = zip(*nodes, strict=True) if nodes else ((), ())
    return DraftTree(tokens, parents, (0.5,) * len(nodes), (("test",),) * len(nodes))


@st.composite
def alike_trees(draw: st.DrawFn) -> DraftTree:
    """Draw a tree with equal siblings and ids outside the vocabulary."""
    size = draw(st.integers(0, 10))
    return tree_of(*((draw(st.integers(ROOT, i - 1)), draw(st.integers(-1, 4))) for i in range(size)))


def random_tree(rng: random.Random, nodes: int, vocabulary: int) -> DraftTree:
    parents = tuple(rng.randrange(max(ROOT, i - 5), i) for i in range(nodes))
    tokens = tuple(rng.randrange(3, vocabulary) for _ in range(nodes))
    return DraftTree(tokens, parents, (0.5,) * nodes, (("guess",),) * nodes)


def path_to(tree: DraftTree, node: int) -> tuple[int, ...]:
    return () if node == ROOT else (*path_to(tree, tree.parents[node]), node)


class ScriptedAcceptance:
    """Accepts the path and bonus token in `accepts`, and records the logits of the last pass."""

    def __init__(self) -> None:
        self.logits = torch.empty(0)
        self.accepts: tuple[tuple[int, ...], int] = (), 9

    def __call__(self, tree: DraftTree, logits: torch.Tensor) -> tuple[tuple[int, ...], int]:
        self.logits = logits.clone()
        return self.accepts
