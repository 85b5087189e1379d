"""Sequences whose verifier accepts what a test says; random trees."""

from __future__ import annotations

import random

import torch

from crossspec_ros.engine.accept import Verifier
from crossspec_ros.engine.sampling import Sampling
from crossspec_ros.engine.tree import ROOT, DraftTree


class Told(Verifier):
    """Accepts what it is told to, and keeps the logits of the last pass."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = torch.empty(0)
        self.accepts: tuple[tuple[int, ...], int] = (), 9

    def accept(
        self, tree: DraftTree, logits: torch.Tensor, sampling: Sampling | None
    ) -> tuple[tuple[int, ...], int]:
        self.logits = logits.clone()
        return self.accepts


def random_tree(rng: random.Random, nodes: int, vocabulary: int) -> DraftTree:
    parents = tuple(rng.randrange(max(ROOT, i - 5), i) for i in range(nodes))
    tokens = tuple(rng.randrange(3, vocabulary) for _ in range(nodes))
    return DraftTree(tokens, parents, (0.5,) * nodes, (("guess",),) * nodes)


def path_to(tree: DraftTree, node: int) -> tuple[int, ...]:
    return () if node == ROOT else (*path_to(tree, tree.parents[node]), node)
