"""Does sampling with drafts keep the target's distribution? A chi-square test, and controls that fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
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

Verifier = Callable[
    [DraftTree, torch.Tensor, Mapping[int, torch.Tensor], torch.Generator], tuple[tuple[int, ...], int]
]


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
        "guessed tree": _check(samples, False, sample_path),
        "drawn chain": _check(samples, True, sample_path),
        "control: no residual after a refused draw": _check(samples, True, _without_residual),
        "control: every guess accepted": _check(samples, False, _credulous),
    }


@cache
def _probs(seed: int, tokens: tuple[int, ...]) -> torch.Tensor:
    """(VOCABULARY,) next-token probabilities of a random model."""
    return _SAMPLING.probs(torch.tensor(np.random.default_rng([seed, *tokens]).normal(0, 1.2, VOCABULARY)))


def _check(samples: int, drawn: bool, verify: Verifier) -> Check:
    rng, generator = np.random.default_rng(1), torch.Generator().manual_seed(2)
    counts: Counter[tuple[int, ...]] = Counter()
    for _ in range(samples):
        tokens: tuple[int, ...] = ()
        while len(tokens) < LENGTH:
            tree, draws = _drawn_chain(tokens, rng) if drawn else (_guessed_tree(tokens), {})
            paths = [tokens]
            for parent, token in zip(tree.parents, tree.token_ids, strict=True):
                paths.append((*paths[1 + parent], token))
            path, following = verify(tree, torch.stack([_probs(0, p) for p in paths]), draws, generator)
            tokens += (*(tree.token_ids[node] for node in path), following)
        counts[tokens[:LENGTH]] += 1
    return _chi_square(counts)


def _guessed_tree(tokens: tuple[int, ...]) -> DraftTree:
    first = sum(tokens) % VOCABULARY
    guesses = [(first + step) % VOCABULARY for step in (0, 1, 3, 2, 4)]
    return DraftTree(tuple(guesses), (ROOT, ROOT, 0, 0, 1), (0.5,) * 5, (("guess",),) * 5)


def _drawn_chain(
    tokens: tuple[int, ...], rng: np.random.Generator
) -> tuple[DraftTree, dict[int, torch.Tensor]]:
    draws, path = dict[int, torch.Tensor](), tokens
    for i in range(2):
        draws[i] = _probs(1, path)
        weights = draws[i].double().numpy()
        path = (*path, int(rng.choice(VOCABULARY, p=weights / weights.sum())))
    return DraftTree.chain(path[len(tokens) :], [0.5] * 2, "draw"), draws


def _without_residual(
    tree: DraftTree, probs: torch.Tensor, draws: Mapping[int, torch.Tensor], generator: torch.Generator
) -> tuple[tuple[int, ...], int]:
    """The defect: what is left after a refused draw is taken to be the target's whole distribution."""

    def choose(node: int) -> int:
        if (child := node + 1) < len(tree):
            token = tree.token_ids[child]
            if torch.rand((), generator=generator) < probs[1 + node][token] / draws[child][token]:
                return token
        return int(torch.multinomial(probs[1 + node], 1, generator=generator))

    return follow(tree, choose)


def _credulous(
    tree: DraftTree, probs: torch.Tensor, draws: Mapping[int, torch.Tensor], generator: torch.Generator
) -> tuple[tuple[int, ...], int]:
    """The defect: the first child is accepted wherever the target might say it at all."""

    def choose(node: int) -> int:
        children = (t for t, parent in zip(tree.token_ids, tree.parents, strict=True) if parent == node)
        said = next((token for token in children if probs[1 + node][token] > 0), None)
        return int(torch.multinomial(probs[1 + node], 1, generator=generator)) if said is None else said

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
