"""Draft trees: the continuations that the target verifies in one pass, and their attention mask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

ROOT = -1
"""Parent of a first token: the last verified token."""


@dataclass(frozen=True)
class DraftTree:
    """Draft tokens as a tree, in which parents come before their children: `parents[i] < i`.

    `probs[i]` estimates the probability that the target accepts node `i` if it accepts the parent.
    `sources[i]` has the names of the node's proposers.
    """

    token_ids: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    probs: tuple[float, ...] = ()
    sources: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def chain(cls, tokens: Sequence[int], probs: Sequence[float], source: str) -> DraftTree:
        """Return a tree with a single path."""
        n = len(tokens)
        return cls(tuple(tokens), tuple(range(-1, n - 1)), tuple(probs), ((source,),) * n)

    def __len__(self) -> int:
        return len(self.token_ids)

    def depths(self) -> list[int]:
        """Return the depth of each node; 1 for the root's children."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        return depths

    def path_probs(self) -> list[float]:
        """Return the probability that the target accepts each node: the product of `probs` from the root."""
        paths: list[float] = []
        for parent, prob in zip(self.parents, self.probs, strict=True):
            paths.append(prob if parent == ROOT else paths[parent] * prob)
        return paths

    def child(self, node: int, token: int) -> int | None:
        """Return the first child of `node` (ROOT for the first tokens) with this token."""
        pairs = zip(self.parents, self.token_ids, strict=True)
        return next((i for i, pair in enumerate(pairs) if pair == (node, token)), None)

    def mask(self) -> np.ndarray:
        """Return (n, n) bool: node `i` attends to node `j` if it is itself or an ancestor."""
        seen = np.eye(len(self), dtype=bool)
        for i, parent in enumerate(self.parents):
            if parent != ROOT:
                seen[i] |= seen[parent]
        return seen

    def cut(self, depth: int) -> DraftTree:
        """Return the tree down to this depth."""
        return self.of([i for i, own in enumerate(self.depths()) if own <= depth])

    def pruned(self, budget: int) -> DraftTree:
        """Return the `budget` nodes with the highest path probabilities; ties go to the first node."""
        paths = self.path_probs()
        # A parent is at least as likely as its children and comes first, so the result is a tree.
        return self.of(sorted(sorted(range(len(self)), key=lambda i: -paths[i])[:budget]))

    def likeliest_path(self) -> DraftTree:
        """Return the path with the most expected accepted tokens; ties go to the first path."""
        gains: list[float] = []
        for parent, prob in zip(self.parents, self.path_probs(), strict=True):
            gains.append(prob if parent == ROOT else gains[parent] + prob)
        return self.of(self.path(gains.index(max(gains)) if gains else ROOT))

    def path(self, node: int) -> list[int]:
        """Return the nodes of the path from the root to this node."""
        nodes: list[int] = []
        while node != ROOT:
            nodes.insert(0, node)
            node = self.parents[node]
        return nodes

    def of(self, kept: Sequence[int]) -> DraftTree:
        """Return the tree of these nodes, in this order; it must contain their parents."""
        if len(kept) == len(self):
            return self
        index = {node: i for i, node in enumerate(kept)}
        return DraftTree(
            tuple(self.token_ids[i] for i in kept),
            tuple(index.get(self.parents[i], ROOT) for i in kept),
            tuple(self.probs[i] for i in kept),
            tuple(self.sources[i] for i in kept),
        )

    def within(self, vocabulary: int) -> DraftTree:
        """Return the tree without token ids outside the vocabulary, and without their descendants."""
        kept: list[int] = []
        for i, (token, parent) in enumerate(zip(self.token_ids, self.parents, strict=True)):
            if 0 <= token < vocabulary and (parent == ROOT or parent in kept):
                kept.append(i)
        return self.of(kept)

    @staticmethod
    def merged(trees: Iterable[DraftTree]) -> DraftTree:
        """Merge trees: equal paths become one, with the higher probabilities and all sources."""
        nodes: dict[tuple[int, int], int] = {}
        probs: list[float] = []
        sources: list[tuple[str, ...]] = []
        for tree in trees:
            mine = {ROOT: ROOT}
            for i, key in enumerate(zip(tree.parents, tree.token_ids, strict=True)):
                node = mine[i] = nodes.setdefault((mine[key[0]], key[1]), len(nodes))
                if node == len(probs):
                    probs.append(0.0)
                    sources.append(())
                probs[node] = max(probs[node], tree.probs[i])
                sources[node] += tuple(name for name in tree.sources[i] if name not in sources[node])
        parents, token_ids = zip(*nodes, strict=True) if nodes else ((), ())
        return DraftTree(token_ids, parents, tuple(probs), tuple(sources))


def follow(tree: DraftTree, choose: Callable[[int], int]) -> tuple[tuple[int, ...], int]:
    """Return the accepted nodes, from the root down, and the target's token after them (the bonus token).

    `choose` returns the target's token after a node or after ROOT. It is called once for each node of the
    path. The first of several siblings with the same token is accepted. Token ids outside the target's
    vocabulary are never accepted.
    """
    nodes = [ROOT]
    while (child := tree.child(nodes[-1], token := choose(nodes[-1]))) is not None:
        nodes.append(child)
    return tuple(nodes[1:]), token


def attention_mask(cached: int, unread: int, tree: DraftTree) -> np.ndarray:
    """Return the mask (unread + nodes, cached + unread + nodes), bool, of `unread` tokens and a tree."""
    nodes = len(tree)
    mask = np.tri(unread + nodes, cached + unread + nodes, cached, bool)
    mask[unread:, cached + unread :] = tree.mask()
    return mask
