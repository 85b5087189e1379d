"""Sampling with a draft tree has the target's distribution, and the test detects a defect."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from draft_trees import alike_trees, tree_of
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from crossspec_ros.engine import sampling as sampling_module
from crossspec_ros.engine.accept import greedy_path
from crossspec_ros.engine.sampling import Sampling, draw_token
from crossspec_ros.engine.tree import ROOT, DraftTree, follow

VOCAB, LENGTH = 5, 3
"""Size of the vocabulary, and length of the sequences whose distribution is compared."""


def plain(logits):
    return logits.softmax(-1)


warped = Sampling(0.7, 0.8, 0).probs


@cache
def target(tokens, warp):
    """Return (VOCAB,) probabilities of a random model's next token."""
    return warp(torch.tensor(np.random.default_rng([1, *tokens]).normal(0, 1.2, VOCAB)))


NOTHING = ()
CHAIN = ((ROOT, 0), (0, 1))
TREE = ((ROOT, 0), (ROOT, 1), (ROOT, 3), (0, 0), (0, 2), (1, 1))


@cache
def case(shape, tokens, warp):
    """Return a tree after `tokens`, with (parent, rank) nodes in `shape`, and the target's probabilities."""
    paths = [tokens]
    for parent, rank in shape:
        path = paths[parent + 1]
        paths.append((*path, (sum(path) + rank) % VOCAB))
    tree = tree_of(*((parent, path[-1]) for (parent, _), path in zip(shape, paths[1:], strict=True)))
    return tree, torch.stack([target(path, warp) for path in paths])


def verified(tree, probs, generator):
    return follow(tree, lambda node: draw_token(probs[1 + node], generator))


def with_parents_probs(tree, probs, generator):
    return follow(tree, lambda node: draw_token(probs[1 + max(node - 1, -1)], generator))


def trusting(tree, probs, generator):
    """Accept the first guess at each node."""

    def choose(node):
        guesses = (tree.token_ids[i] for i, parent in enumerate(tree.parents) if parent == node)
        return next(guesses, None) or draw_token(probs[1 + node], generator)

    return follow(tree, choose)


def sampled(shape, warp, verify, size):
    """Count the sequences that drafting and verification generate."""
    generator = torch.Generator().manual_seed(4)
    counts = Counter()
    for _ in range(size):
        tokens = ()
        while len(tokens) < LENGTH:
            tree, probs = case(shape, tokens, warp)
            path, last = verify(tree, probs, generator)
            tokens += (*(tree.token_ids[i] for i in path), last)
        counts[tokens[:LENGTH]] += 1
    return counts


def chi_square(counts, warp):
    """Return Pearson's statistic against the target's distribution, and its critical value at 1e-3."""
    size, cells, rare = counts.total(), [], [0.0, 0.0]
    for tokens in product(range(VOCAB), repeat=LENGTH):
        wanted = size * float(np.prod([target(tokens[:i], warp)[tokens[i]] for i in range(LENGTH)]))
        if wanted >= 5:
            cells.append((counts[tokens], wanted))
        else:
            rare[0] += counts[tokens]
            rare[1] += wanted
    if rare[0] or rare[1]:
        # An impossible sequence makes this infinite.
        cells.append((rare[0], max(rare[1], 1e-300)))
    free = len(cells) - 1
    # Wilson and Hilferty (1931); 3.0902 is the normal distribution's quantile.
    critical = free * (1 - 2 / (9 * free) + 3.0902 * (2 / (9 * free)) ** 0.5) ** 3
    return sum((seen - wanted) ** 2 / wanted for seen, wanted in cells), critical


@pytest.mark.parametrize(
    ("shape", "warp", "size"),
    [(NOTHING, plain, 10_000), (CHAIN, plain, 10_000), (TREE, plain, 10_000), (TREE, warped, 10_000)],
    ids=["nothing", "chain", "tree", "warped"],
)
def test_samples_have_targets_distribution(shape, warp, size):
    """For any draft tree."""
    statistic, critical = chi_square(sampled(shape, warp, verified, size), warp)
    assert statistic < critical


@pytest.mark.parametrize(("shape", "verify"), [(CHAIN, with_parents_probs), (TREE, trusting)])
def test_defective_verification_is_detected(shape, verify):
    statistic, critical = chi_square(sampled(shape, plain, verify, 5_000), plain)
    assert statistic > critical


@given(alike_trees(), st.data())
def test_certain_distribution_gives_greedy_path(tree, data):
    size = len(tree) + 1
    choices = data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    probs = torch.nn.functional.one_hot(torch.tensor(choices), 4).float()
    assert verified(tree, probs, torch.Generator()) == greedy_path(tree, choices)


def test_draw_uses_one_float64_number():
    numbers = torch.rand(50, dtype=torch.float64, generator=Sampling(1.0, 1.0, 8).generator())
    generator = Sampling(1.0, 1.0, 8).generator()
    tokens = [verified(DraftTree(), torch.ones(1, 1000), generator)[1] for _ in numbers]
    assert tokens == (numbers * 1000).int().tolist()


@pytest.mark.parametrize(
    ("number", "probs", "token"),
    # In floating point, the sum of ten times 0.1 is less than one.
    [(0.0, [0, 1, 4e-9, 0], 1), (1 - 2**-53, [0, 1, 4e-9, 0], 2), (1 - 2**-53, [1.0] * 10, 9)],
)
def test_ends_of_range_draw_possible_tokens(monkeypatch, number, probs, token):
    monkeypatch.setattr(sampling_module, "_uniform", lambda generator: number)
    assert verified(DraftTree(), torch.tensor([probs]), torch.Generator()) == ((), token)


SCORES = st.one_of(st.floats(-30, 30, width=32), st.sampled_from([-torch.inf, 0.0, 1.0]))


@given(
    st.lists(st.lists(SCORES, min_size=6, max_size=6), min_size=1, max_size=4),
    st.floats(0.05, 5),
    st.floats(1e-6, 1),
    st.integers(0, 9),
)
def test_probabilities_equal_transformers(logits, temperature, top_p, top_k):
    scores = torch.tensor(logits)
    scores[:, 2] = 0.5
    warped = TemperatureLogitsWarper(temperature)(None, scores)
    if top_k:
        warped = TopKLogitsWarper(top_k)(None, warped)
    wanted = TopPLogitsWarper(top_p)(None, warped).softmax(-1)
    sampling = Sampling(temperature, top_p, 0, top_k)
    assert torch.equal(sampling.probs(scores), wanted)
    assert torch.equal(sampling.probs(scores[None]), wanted[None])
    assert torch.equal(sampling.probs(scores[0]), sampling.probs(scores[:1])[0])


def test_top_p_of_32000_tokens_equals_transformers():
    logits = torch.randn(9, 32000, generator=Sampling(1.0, 1.0, 1).generator()) * 4
    for logits_of in (logits, logits.bfloat16()):
        scores = logits_of.float()
        wanted = TopPLogitsWarper(0.9)(None, TemperatureLogitsWarper(0.8)(None, scores)).softmax(-1)
        kept = (wanted > 0).sum(-1)
        assert 100 < kept.max() < 16000
        assert torch.equal(Sampling(0.8, 0.9, 0).probs(logits_of), wanted)


def test_smallest_temperature_and_top_p_are_greedy():
    logits = torch.tensor([3e4, -3e4, 2.9e4])
    for sampling in (Sampling(sampling_module.MIN_TEMPERATURE, 1, 0), Sampling(1e4, 1e-9, 0)):
        assert sampling.probs(logits).tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("name", "code", "values"),
    [("temperature", "temperature-impossible", (0.0, float("inf"), float("nan"))),
     ("top_p", "top-p-impossible", (0.0, 1.01, float("nan"))), ("seed", "seed-impossible", (-1, 2**63))],
)  # fmt: skip
def test_bad_values_are_refused(name, code, values):
    for value in values:
        with refused(code, value=value):
            Sampling(**{"temperature": 1.0, "top_p": 1.0, "seed": 0, name: value})
