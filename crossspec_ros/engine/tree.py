"""The draft tree: all continuations that the target verifies in one pass, and their attention mask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

ROOT = -1
"""The parent of a first token: the last token that is already verified."""


@dataclass(frozen=True)
class DraftTree:
    """Guessed continuations as a token tree; node `i` comes after its parent, so `parents[i] < i`.

    `probs[i]` estimates how likely the target takes node `i` once it took its parent; `sources[i]` names the
    proposers that had it.
    """

    token_ids: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    probs: tuple[float, ...] = ()
    sources: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def chain(cls, tokens: Sequence[int], probs: Sequence[float], source: str) -> DraftTree:
        """Return one continuation, each token the child of the one before."""
        n = len(tokens)
        return cls(tuple(tokens), tuple(range(-1, n - 1)), tuple(probs), ((source,),) * n)

    def __len__(self) -> int:
        return len(self.token_ids)

    def depths(self) -> list[int]:
        """Number of tokens from the root to each node; 1 for the root's children."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        return depths

    def path_probs(self) -> list[float]:
        """Probability that the target takes each node: the product of `probs` from the root."""
        paths: list[float] = []
        for parent, prob in zip(self.parents, self.probs, strict=True):
            paths.append(prob if parent == ROOT else paths[parent] * prob)
        return paths

    def child(self, node: int, token: int) -> int | None:
        """Return the first child of `node` (ROOT for the first tokens) with this token."""
        pairs = zip(self.parents, self.token_ids, strict=True)
        return next((i for i, pair in enumerate(pairs) if pair == (node, token)), None)

    def mask(self) -> np.ndarray:
        """(n, n) bool: whether node `i` sees node `j`, which holds for itself and its ancestors."""
        seen = np.eye(len(self), dtype=bool)
        for i, parent in enumerate(self.parents):
            if parent != ROOT:
                seen[i] |= seen[parent]
        return seen

    def cut(self, depth: int) -> DraftTree:
        """Return the nodes that are at most `depth` tokens after the root."""
        return self.of([i for i, own in enumerate(self.depths()) if own <= depth])

    def pruned(self, budget: int) -> DraftTree:
        """Return the `budget` nodes that the target most likely accepts; ties go to the first node."""
        paths = self.path_probs()
        # A node is never likelier than its parent, which came first, so that the result is a tree.
        return self.of(sorted(sorted(range(len(self)), key=lambda i: -paths[i])[:budget]))

    def likeliest_path(self) -> DraftTree:
        """Return the path with most expected accepted tokens; ties go to the first path."""
        gains: list[float] = []
        for parent, prob in zip(self.parents, self.path_probs(), strict=True):
            gains.append(prob if parent == ROOT else gains[parent] + prob)
        return self.of(self.path(gains.index(max(gains)) if gains else ROOT))

    def path(self, node: int) -> list[int]:
        """Return the nodes from the root down to this one."""
        nodes: list[int] = []
        while node != ROOT:
            nodes.insert(0, node)
            node = self.parents[node]
        return nodes

    def of(self, kept: Sequence[int]) -> DraftTree:
        """Return these nodes, in their order, each with its parent among them."""
        if len(kept) == len(self):
            return self
        place = {node: i for i, node in enumerate(kept)}
        return DraftTree(
            tuple(self.token_ids[i] for i in kept),
            tuple(place.get(self.parents[i], ROOT) for i in kept),
            tuple(self.probs[i] for i in kept),
            tuple(self.sources[i] for i in kept),
        )

    def within(self, vocabulary: int) -> DraftTree:
        """Return the nodes that a target with so many tokens can read, on paths without others."""
        kept: list[int] = []
        for i, (token, parent) in enumerate(zip(self.token_ids, self.parents, strict=True)):
            if 0 <= token < vocabulary and (parent == ROOT or parent in kept):
                kept.append(i)
        return self.of(kept)

    @staticmethod
    def merged(trees: Iterable[DraftTree]) -> DraftTree:
        """One tree of all proposals: equal paths become one node, with the higher probability."""
        places: dict[tuple[int, int], int] = {}
        probs: list[float] = []
        sources: list[tuple[str, ...]] = []
        for tree in trees:
            mine = {ROOT: ROOT}
            for i, key in enumerate(zip(tree.parents, tree.token_ids, strict=True)):
                place = mine[i] = places.setdefault((mine[key[0]], key[1]), len(places))
                if place == len(probs):
                    probs.append(0.0)
                    sources.append(())
                probs[place] = max(probs[place], tree.probs[i])
                sources[place] += tuple(name for name in tree.sources[i] if name not in sources[place])
        parents, token_ids = zip(*places, strict=True) if places else ((), ())
        return DraftTree(token_ids, parents, tuple(probs), tuple(sources))


def follow(tree: DraftTree, choose: Callable[[int], int]) -> tuple[tuple[int, ...], int]:
    """Return the accepted nodes, from the root down, and the target's token after the last of them.

    `choose` returns the target's token after a node (ROOT: after the last verified token), and is called once
    for each node on the path. Of siblings with the same token the first is accepted. Ids out of the target's
    vocabulary are never accepted.
    """
    nodes = [ROOT]
    while (child := tree.child(nodes[-1], token := choose(nodes[-1]))) is not None:
        nodes.append(child)
    return tuple(nodes[1:]), token


def sees(cached: int, unread: int, tree: DraftTree) -> np.ndarray:
    """Return the attention mask (unread + nodes, all), bool, of `unread` tokens and each node."""
    nodes = len(tree)
    seen = np.tri(unread + nodes, cached + unread + nodes, cached, bool)
    seen[unread:, cached + unread :] = tree.mask()
    return seen
