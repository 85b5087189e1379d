"""Which draft tokens may stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile

from crossspec_ros.engine.tree import ROOT, DraftTree


def agreement(draft: Sequence[int], choices: Sequence[int]) -> int:
    """How many leading tokens of `draft` are the target's own greedy `choices`."""
    pairs = zip(draft, choices, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def follow(tree: DraftTree, choose: Callable[[int], int]) -> tuple[tuple[int, ...], int]:
    """The nodes that hold the target's own tokens, from the root down, and its token after the last of them.

    `choose` gives the target's token after a node (ROOT: after the last verified token) and is asked once
    for each node on the way. Where siblings hold the same token the first is followed. A token that is no
    target's, such as an id out of its vocabulary, is never met.
    """
    nodes = [ROOT]
    while (child := tree.child(nodes[-1], token := choose(nodes[-1]))) is not None:
        nodes.append(child)
    return tuple(nodes[1:]), token


def greedy_path(tree: DraftTree, choices: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """The accepted nodes, from the root down, and the target's own token after the last of them.

    `choices` are the target's len(tree) + 1 greedy tokens: first the one after the root, then at 1 + i the
    one after node i. See `follow` for siblings that are alike.
    """
    return follow(tree, lambda node: choices[1 + node])
