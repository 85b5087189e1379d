"""Does sampling with drafts keep the target's distribution? A chi-square test, and controls that fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import torch
from scipy.stats import chi2

from crossspec_ros.engine.sampling import Sampling, sample_path
from crossspec_ros.engine.tree import ROOT, DraftTree, follow

VOCABULARY, LENGTH = 5, 3
_LEVEL = 1e-3
_SAMPLING = Sampling(temperature=0.9, top_p=0.95, seed=0)

Verifier = Callable[[DraftTree, Callable[[int], torch.Tensor], torch.Generator], tuple[tuple[int, ...], int]]


@dataclass(frozen=True)
class Check:
    """One test at the 1e-3 level: it passes while the statistic stays below the critical value."""

    samples: int
    statistic: float
    critical: float

    @property
    def passed(self) -> bool:
        return self.statistic < self.critical


def check_sampling(samples: int) -> dict[str, Check]:
    """Sequences of `LENGTH` tokens of a random model, drafted, verified and drawn again until complete.

    The checks named "control" have a planted defect.
    """
    return {
        "guessed tree": _check(samples, sample_path),
        "control: every guess accepted": _check(samples, _credulous),
    }


@cache
def _probs(seed: int, tokens: tuple[int, ...]) -> torch.Tensor:
    """(VOCABULARY,) next-token probabilities of a random model."""
    return _SAMPLING.probs(torch.tensor(np.random.default_rng([seed, *tokens]).normal(0, 1.2, VOCABULARY)))


def _check(samples: int, verify: Verifier) -> Check:
    generator = torch.Generator().manual_seed(2)
    counts: Counter[tuple[int, ...]] = Counter()
    for _ in range(samples):
        tokens: tuple[int, ...] = ()
        while len(tokens) < LENGTH:
            tree = _guessed_tree(tokens)
            paths = [tokens]
            for parent, token in zip(tree.parents, tree.token_ids, strict=True):
                paths.append((*paths[1 + parent], token))
            path, following = verify(tree, lambda node, paths=paths: _probs(0, paths[1 + node]), generator)  # type: ignore[misc]
            tokens += (*(tree.token_ids[node] for node in path), following)
        counts[tokens[:LENGTH]] += 1
    return _chi_square(counts)


def _guessed_tree(tokens: tuple[int, ...]) -> DraftTree:
    first = sum(tokens) % VOCABULARY
    guesses = [(first + step) % VOCABULARY for step in (0, 1, 3, 2, 4)]
    return DraftTree(tuple(guesses), (ROOT, ROOT, 0, 0, 1), (0.5,) * 5, (("guess",),) * 5)


def _credulous(
    tree: DraftTree, probs: Callable[[int], torch.Tensor], generator: torch.Generator
) -> tuple[tuple[int, ...], int]:
    """Verifier with a defect: the first child is accepted wherever the target might say it at all."""

    def choose(node: int) -> int:
        children = (t for t, parent in zip(tree.token_ids, tree.parents, strict=True) if parent == node)
        said = next((token for token in children if probs(node)[token] > 0), None)
        return int(torch.multinomial(probs(node), 1, generator=generator)) if said is None else said

    return follow(tree, choose)


def _chi_square(counts: Counter[tuple[int, ...]]) -> Check:
    size, rare = counts.total(), (0.0, 0.0)
    cells: list[tuple[float, float]] = []
    for tokens in product(range(VOCABULARY), repeat=LENGTH):
        expected = size * float(np.prod([float(_probs(0, tokens[:i])[tokens[i]]) for i in range(LENGTH)]))
        if expected >= 5:
            cells.append((counts[tokens], expected))
        else:
            rare = (rare[0] + counts[tokens], rare[1] + expected)
    # Sequences that nucleus sampling never says must not come at all.
    cells.append((rare[0], max(rare[1], 1e-9)))
    critical = float(chi2.ppf(1 - _LEVEL, len(cells) - 1))
    return Check(size, sum((seen - expected) ** 2 / expected for seen, expected in cells), critical)
