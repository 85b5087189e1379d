"""The draft tree: every continuation that is put to the target in one pass, and what each of them sees."""

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
        """One continuation, each token the child of the one before."""
        n = len(tokens)
        return cls(tuple(tokens), tuple(range(-1, n - 1)), tuple(probs), ((source,),) * n)

    @classmethod
    def filler(cls, nodes: int) -> DraftTree:
        """A chain of so many nodes for passes whose time counts, and not what they say."""
        return cls.chain([0] * nodes, [1.0] * nodes, "")

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
        """The child of `node` (ROOT for the first tokens) that holds `token`."""
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
        """The nodes that are at most `depth` tokens after the root."""
        depths = self.depths()
        if max(depths, default=0) <= depth:
            return self
        return self.of([i for i, d in enumerate(depths) if d <= depth])

    def pruned(self, budget: int) -> DraftTree:
        """The `budget` nodes that the target most likely takes; ties go to the node that came first."""
        if len(self) <= budget:
            return self
        paths = self.path_probs()
        # A node is never likelier than its parent, which came first: what stays is a tree.
        return self.of(sorted(sorted(range(len(self)), key=lambda i: -paths[i])[:budget]))

    def likeliest_path(self) -> DraftTree:
        """The one path of which the target most likely takes most; ties go to the one that came first."""
        gains: list[float] = []
        for parent, prob in zip(self.parents, self.path_probs(), strict=True):
            gains.append(prob if parent == ROOT else gains[parent] + prob)
        kept: list[int] = []
        node = gains.index(max(gains)) if gains else ROOT
        while node != ROOT:
            kept.insert(0, node)
            node = self.parents[node]
        return self.of(kept)

    def of(self, kept: Sequence[int]) -> DraftTree:
        """These nodes, in their order, each with its parent among them."""
        place = {ROOT: ROOT, **{node: i for i, node in enumerate(kept)}}
        return DraftTree(
            tuple(self.token_ids[i] for i in kept),
            tuple(place[self.parents[i]] for i in kept),
            tuple(self.probs[i] for i in kept),
            tuple(self.sources[i] for i in kept),
        )

    @staticmethod
    def merged(trees: Iterable[DraftTree]) -> DraftTree:
        """One tree of all proposals: equal paths become one node, with the higher probability."""
        places: dict[tuple[int, int], int] = {}
        probs: list[float] = []
        sources: list[tuple[str, ...]] = []
        for tree in trees:
            mine = {ROOT: ROOT}
            for i, key in enumerate(zip(tree.parents, tree.token_ids, strict=True)):
                place = places.setdefault((mine[key[0]], key[1]), len(places))
                mine[i] = place
                if place == len(probs):
                    probs.append(tree.probs[i])
                    sources.append(tree.sources[i])
                else:
                    probs[place] = max(probs[place], tree.probs[i])
                    sources[place] += tuple(s for s in tree.sources[i] if s not in sources[place])
        keys = list(places)
        return DraftTree(
            tuple(token for _, token in keys),
            tuple(parent for parent, _ in keys),
            tuple(probs),
            tuple(sources),
        )


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


def sees(cached: int, unread: int, tree: DraftTree) -> np.ndarray:
    """(unread + nodes, all) bool: tokens that each of `unread` tokens and each node sees."""
    nodes = len(tree)
    seen = np.tri(unread + nodes, cached + unread + nodes, cached, bool)
    seen[unread:, cached + unread :] = tree.mask()
    return seen
