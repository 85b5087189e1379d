"""Sampling with a draft tree gives the target's own distribution, and a defect would be seen."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from itertools import accumulate, product
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from draft_trees import alike_trees, tree_of
from hypothesis import given
from hypothesis import strategies as st
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from crossspec_ros.engine import sampling as sampling_module
from crossspec_ros.engine.accept import greedy_path
from crossspec_ros.engine.sampling import Sampling, sample_path
from crossspec_ros.engine.tree import ROOT, DraftTree
from crossspec_ros.errors import InputError

VOCAB, LENGTH = 5, 3
"""The tokens, and how many of them make a sequence whose distribution is compared."""

Tokens = tuple[int, ...]
Warp = Callable[[torch.Tensor], torch.Tensor]
Draft = tuple[DraftTree, dict[int, torch.Tensor]]
Case = tuple[DraftTree, torch.Tensor, dict[int, torch.Tensor]]
Draw = Callable[[torch.Tensor], int]
Drafter = Callable[[Tokens, Draw], Draft]
Verifier = Callable[
    [DraftTree, torch.Tensor, Mapping[int, torch.Tensor], torch.Generator], tuple[Tokens, int]
]


def plain(logits: torch.Tensor) -> torch.Tensor:
    return logits.softmax(-1)


warped = Sampling(0.7, 0.8, 0).probs


@cache
def model(name: int, tokens: Tokens, warp: Warp) -> torch.Tensor:
    """(VOCAB,) probabilities of a random model's next token."""
    return warp(torch.tensor(np.random.default_rng([name, *tokens]).normal(0, 1.2, VOCAB)))


target, draft = partial(model, 1), partial(model, 2, warp=plain)


def drafter(*shape: tuple[int, int | None]) -> Drafter:
    """Trees of (parent, rank) nodes: the guess of that rank, or where it is None a draw."""

    def propose(tokens: Tokens, draw: Draw) -> Draft:
        paths, draws = [tokens], {}
        for i, (parent, rank) in enumerate(shape):
            path = paths[parent + 1]
            if rank is None:
                draws[i] = draft(path)
                paths.append((*path, draw(draws[i])))
            else:
                paths.append((*path, (sum(path) + rank) % VOCAB))
        parents, tokens = (parent for parent, _ in shape), (path[-1] for path in paths[1:])
        return tree_of(*zip(parents, tokens, strict=True)), draws

    return propose


nothing = drafter()
guessed_chain = drafter((ROOT, 0), (0, 1))
guessed_tree = drafter((ROOT, 0), (ROOT, 1), (ROOT, 3), (0, 0), (0, 2), (1, 1))
drawn_chain = drafter((ROOT, None), (0, None))
drawn_tree = drafter((ROOT, None), (ROOT, None), (1, None))
mixed_tree = drafter((ROOT, 0), (ROOT, None), (0, 2), (0, None), (1, None), (1, 1))


def without_replacement(tokens: Tokens, draw: Draw) -> Draft:
    """Three siblings, each drawn from what the ones before it left."""
    q, drawn, draws = draft(tokens), [], {}
    for i in range(3):
        drawn.append((ROOT, draw(q)))
        draws[i] = q
        q = q.clone()
        q[drawn[-1][1]] = 0
        q /= q.sum()
    return tree_of(*drawn), draws


def merged(*drafters: Drafter) -> Drafter:
    """One tree of all, as the decoder makes it: what is alike only once."""

    def propose(tokens: Tokens, draw: Draw) -> Draft:
        drafts = [propose(tokens, draw) for propose in drafters]
        tree, all_draws = DraftTree.merged(tree for tree, _ in drafts), {}
        for own, draws in drafts:
            places = {ROOT: ROOT}
            for i, (parent, token) in enumerate(zip(own.parents, own.token_ids, strict=True)):
                places[i] = tree.child(places[parent], token)
            all_draws.update({places[i]: q for i, q in draws.items()})
        return tree, all_draws

    return propose


class Undrawn(Exception):
    """A draw is yet to be made, from the distribution in `args`."""


def every_draft(
    propose: Drafter, tokens: Tokens, drawn: Tokens = (), chance: float = 1.0
) -> Iterator[tuple[Draft, float]]:
    """All drafts there may be after `tokens` that begin with these draws, each with its chance."""
    replay = iter(drawn)

    def draw(q: torch.Tensor) -> int:
        for token in replay:
            return token
        raise Undrawn(q)

    try:
        found = propose(tokens, draw)
    except Undrawn as undrawn:
        for token, p in enumerate(undrawn.args[0].tolist()):
            if p:
                yield from every_draft(propose, tokens, (*drawn, token), chance * p)
    else:
        yield found, chance


@cache
def drafts(propose: Drafter, tokens: Tokens, warp: Warp) -> tuple[list[Case], list[float]]:
    """Every draft after `tokens` with the target's rows for it, and their chances, summed up.

    To take one of these by chance is to propose anew, only faster.
    """
    cases, chances = [], []
    for (tree, draws), chance in every_draft(propose, tokens):
        paths = [tokens]
        for parent, token in zip(tree.parents, tree.token_ids, strict=True):
            paths.append((*paths[parent + 1], token))
        cases.append((tree, torch.stack([target(path, warp) for path in paths]), draws))
        chances.append(chance)
    return cases, list(accumulate(chances))


def sampled(propose: Drafter, warp: Warp, verify: Verifier, size: int) -> Counter[Tokens]:
    """How often each sequence comes out of the whole loop: draft, verify, take, until it is complete."""
    rng, generator = random.Random(3), torch.Generator().manual_seed(4)
    counts: Counter[Tokens] = Counter()
    for _ in range(size):
        tokens: Tokens = ()
        while len(tokens) < LENGTH:
            cases, upto = drafts(propose, tokens, warp)
            tree, probs, draws = rng.choices(cases, cum_weights=upto)[0]
            path, last = verify(tree, probs, draws, generator)
            tokens += (*(tree.token_ids[i] for i in path), last)
        counts[tokens[:LENGTH]] += 1
    return counts


def chi_square(counts: Counter[Tokens], warp: Warp) -> tuple[float, float]:
    """Pearson's statistic against the target's distribution, and its critical value at the 1e-3 level."""
    size, cells, rare = counts.total(), [], [0.0, 0.0]
    for tokens in product(range(VOCAB), repeat=LENGTH):
        wanted = size * float(np.prod([target(tokens[:i], warp)[tokens[i]] for i in range(LENGTH)]))
        if wanted >= 5:
            cells.append((counts[tokens], wanted))
        else:
            rare[0] += counts[tokens]
            rare[1] += wanted
    if rare[0] or rare[1]:
        # A sequence that the target never says makes this infinite.
        cells.append((rare[0], max(rare[1], 1e-300)))
    free = len(cells) - 1
    # Wilson and Hilferty (1931); 3.0902 is the normal distribution's quantile.
    critical = free * (1 - 2 / (9 * free) + 3.0902 * (2 / (9 * free)) ** 0.5) ** 3
    return sum((seen - wanted) ** 2 / wanted for seen, wanted in cells), critical


@pytest.mark.parametrize(
    ("propose", "warp", "size"),
    [
        pytest.param(nothing, plain, 10_000, id="nothing"),
        pytest.param(guessed_chain, plain, 10_000, id="guessed chain"),
        pytest.param(guessed_tree, plain, 30_000, id="guessed tree"),
        pytest.param(drawn_chain, plain, 10_000, id="drawn chain"),
        pytest.param(drawn_tree, plain, 30_000, id="drawn tree"),
        pytest.param(mixed_tree, plain, 10_000, id="mixed tree"),
        pytest.param(merged(guessed_tree, drawn_chain), plain, 30_000, id="merged"),
        pytest.param(merged(guessed_tree, without_replacement), plain, 10_000, id="without replacement"),
        pytest.param(mixed_tree, warped, 10_000, id="warped"),
    ],
)
def test_whatever_is_drafted_the_distribution_is_the_targets(propose: Drafter, warp: Warp, size: int) -> None:
    statistic, critical = chi_square(sampled(propose, warp, sample_path, size), warp)
    assert statistic < critical


def planted(right: str, wrong: str) -> Verifier:
    """`sample_path` with a defect."""
    source = Path(sampling_module.__file__).read_text()
    assert source.count(right) == 1
    defective = ModuleType(sampling_module.__name__)
    exec(source.replace(right, wrong), defective.__dict__)
    return defective.sample_path


TRUSTING = """def choose(node: int) -> int:
        for i, parent in enumerate(tree.parents):
            if parent == node and i not in draft_probs:
                return tree.token_ids[i]
"""


@pytest.mark.parametrize(
    ("propose", "right", "wrong"),
    [
        pytest.param(drawn_chain, "p = left / total", "pass", id="no residual"),
        pytest.param(drawn_tree, "p = left / total", "p = left", id="residual not renormalised"),
        pytest.param(drawn_chain, "np.maximum(p - q, 0)", "np.abs(p - q)", id="negative residual"),
        pytest.param(drawn_chain, "draft_probs[i]) for", "draft_probs[0]) for", id="q of another node"),
        pytest.param(drawn_chain, "* q[token] < p[token]", "* p[token] < q[token]", id="ratio inverted"),
        pytest.param(guessed_chain, "probs[1 + node]", "probs[max(node, 0)]", id="p of the parent"),
        pytest.param(guessed_tree, "def choose(node: int) -> int:\n", TRUSTING, id="guesses always taken"),
    ],
)
def test_a_defect_in_the_verification_is_seen(propose: Drafter, right: str, wrong: str) -> None:
    statistic, critical = chi_square(sampled(propose, plain, planted(right, wrong), 5_000), plain)
    assert statistic > critical


def pruned(tokens: Tokens, draw: Draw) -> Draft:
    """A draw stays only where its proposer was sure of it."""
    tree, draws = drawn_chain(tokens, draw)
    return (tree, draws) if draws[0][tree.token_ids[0]] > 0.3 else nothing(tokens, draw)


def by_probability(tokens: Tokens, draw: Draw) -> Draft:
    """The likelier of two draws goes first."""
    tree, draws = drafter((ROOT, None), (ROOT, None))(tokens, draw)
    order = sorted(draws, key=lambda i: -draws[i][tree.token_ids[i]])
    return tree, {i: draws[i] for i in order}


@pytest.mark.parametrize(
    "propose",
    [
        pytest.param(pruned, id="pruned by probability"),
        pytest.param(by_probability, id="sorted by probability"),
        pytest.param(merged(drawn_tree), id="equal draws merged"),
    ],
)
def test_draws_whose_place_depends_on_their_values_are_seen(propose: Drafter) -> None:
    statistic, critical = chi_square(sampled(propose, plain, sample_path, 10_000), plain)
    assert statistic > critical


def taken(propose: Drafter) -> float:
    """How often the first token is one of the draft's."""
    rng, generator = random.Random(5), torch.Generator().manual_seed(6)
    cases, upto = drafts(propose, (), plain)
    picked = rng.choices(cases, cum_weights=upto, k=5_000)
    return sum(bool(sample_path(*case, generator)[0]) for case in picked) / len(picked)


def test_draws_and_guesses_are_taken_as_often_as_can_be() -> None:
    p, q = target((), plain), draft(())
    assert taken(guessed_tree) == pytest.approx(float(p[[0, 1, 3]].sum()), abs=0.025)
    assert taken(drawn_chain) == pytest.approx(float(torch.minimum(p, q).sum()), abs=0.025)
    # All but what neither the draw nor the guess covers; with the guess tried first it would be 0.07 less.
    both = 1 - float((p - q).clamp(min=0)[:4].sum())
    assert taken(drafter((ROOT, 4), (ROOT, None))) == pytest.approx(both, abs=0.025)


def test_a_draw_from_the_targets_own_distribution_is_always_taken() -> None:
    p = torch.tensor([0.1, 0.2, 0.7])
    for seed in range(300):
        tree, generator = tree_of((ROOT, seed % 3)), Sampling(1.0, 1.0, seed).generator()
        assert sample_path(tree, p.expand(2, 3), {0: 3 * p}, generator)[0] == (0,)


@given(alike_trees(), st.data())
def test_where_the_target_is_certain_the_path_is_the_greedy_one(tree: DraftTree, data: st.DataObject) -> None:
    size = len(tree) + 1
    choices = data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    drawable = [i for i, token in enumerate(tree.token_ids) if 0 <= token < 4]
    drawn = data.draw(st.lists(st.sampled_from(drawable), unique=True)) if drawable else []
    draws = {i: torch.tensor(data.draw(st.lists(st.floats(0.1, 1), min_size=4, max_size=4))) for i in drawn}
    probs = torch.nn.functional.one_hot(torch.tensor(choices), 4).float()
    assert sample_path(tree, probs, draws, torch.Generator()) == greedy_path(tree, choices)


def test_the_same_seed_gives_the_same_path_on_any_scale_of_the_probabilities() -> None:
    case, _ = drafts(mixed_tree, (), plain)
    for seed, (tree, probs, draws) in enumerate(case):
        sampling = Sampling(1.0, 1.0, seed)
        once = sample_path(tree, probs, draws, sampling.generator())
        scaled = {i: 0.3 * q for i, q in draws.items()}
        assert sample_path(tree, 7 * probs, scaled, sampling.generator()) == once


def test_a_token_is_drawn_by_one_float64_number_of_the_generator() -> None:
    numbers = torch.rand(50, dtype=torch.float64, generator=Sampling(1.0, 1.0, 8).generator())
    generator = Sampling(1.0, 1.0, 8).generator()
    tokens = [sample_path(DraftTree(), torch.ones(1, 1000), {}, generator)[1] for _ in numbers]
    assert tokens == (numbers * 1000).int().tolist()


@pytest.mark.parametrize(("number", "token"), [(0.0, 1), (1 - 1e-9, 2), (1 - 2**-53, 2)])
def test_the_ends_of_the_range_stay_within_what_the_target_may_say(
    monkeypatch: pytest.MonkeyPatch, number: float, token: int
) -> None:
    monkeypatch.setattr(sampling_module, "_uniform", lambda generator: number)
    probs = torch.tensor([[0, 1, 4e-9, 0]]).expand(3, 4)
    assert sample_path(DraftTree(), probs[:1], {}, torch.Generator()) == ((), token)
    q = torch.tensor([0.5, 0, 0, 0.5])
    assert sample_path(tree_of((ROOT, 0), (ROOT, 3)), probs, {0: q, 1: q}, torch.Generator()) == ((), token)


def test_probabilities_that_add_up_to_less_than_one_leave_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling_module, "_uniform", lambda generator: 1 - 2**-53)
    assert np.full(10, 0.1).cumsum()[-1] < 1
    assert sample_path(DraftTree(), torch.ones(1, 10), {}, torch.Generator()) == ((), 9)


def test_where_rounding_leaves_nothing_the_target_keeps_its_distribution() -> None:
    certain = torch.tensor([0.0, 1.0, 0.0])
    # A draw that cannot be: of a token that neither would say.
    tree = tree_of((ROOT, 2), (ROOT, 2), (ROOT, 1))
    path = sample_path(tree, certain.expand(4, 3), {0: certain, 1: certain}, torch.Generator())
    assert path == ((2,), 1)


SCORES = st.one_of(st.floats(-30, 30, width=32), st.sampled_from([-torch.inf, 0.0, 1.0]))


@given(
    st.lists(st.lists(SCORES, min_size=6, max_size=6), min_size=1, max_size=4),
    st.floats(0.05, 5),
    st.floats(1e-6, 1),
    st.integers(0, 9),
)
def test_the_probabilities_are_those_of_transformers(
    logits: list[list[float]], temperature: float, top_p: float, top_k: int
) -> None:
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


@pytest.mark.parametrize("top_p", [1e-9, 0.25, 0.5, 0.75, 1.0])
def test_ties_at_the_edge_are_cut_as_transformers_cuts_them(top_p: float) -> None:
    wanted = TopPLogitsWarper(top_p)(None, torch.zeros(1, 4)).softmax(-1)
    assert torch.equal(Sampling(1.0, top_p, 0).probs(torch.zeros(1, 4)), wanted)
    assert (wanted > 0).sum() == max(1, 4 * top_p)


def test_a_whole_vocabulary_is_cut_as_transformers_cuts_it() -> None:
    logits = torch.randn(9, 32000, generator=Sampling(1.0, 1.0, 1).generator()) * 4
    for logits_of in (logits, logits.bfloat16()):
        scores = logits_of.float()
        wanted = TopPLogitsWarper(0.9)(None, TemperatureLogitsWarper(0.8)(None, scores)).softmax(-1)
        kept = (wanted > 0).sum(-1)
        assert 100 < kept.max() < 16000
        assert torch.equal(Sampling(0.8, 0.9, 0).probs(logits_of), wanted)


def test_the_least_temperature_and_the_least_share_are_greedy() -> None:
    logits = torch.tensor([3e4, -3e4, 2.9e4])
    for sampling in (Sampling(sampling_module.MIN_TEMPERATURE, 1, 0), Sampling(1e4, 1e-9, 0)):
        assert sampling.probs(logits).tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ((0.0, 1.0, 0), "temperature 0.0 cannot be sampled at: give 1e-06 or more, or decode greedily"),
        ((-1.0, 1.0, 0), "temperature -1.0 "),
        ((float("inf"), 1.0, 0), "temperature inf "),
        ((float("nan"), 1.0, 0), "temperature nan "),
        ((1.0, 0.0, 0), "top_p 0.0 is no share of the probability: give more than 0 and at most 1, "),
        ((1.0, 1.01, 0), "top_p 1.01 "),
        ((1.0, float("nan"), 0), "top_p nan "),
        ((1.0, 1.0, -1), "seed -1 is out of range: give 0 to 2**63 - 1"),
        ((1.0, 1.0, 2**63), "seed 9223372036854775808 "),
    ],
)
def test_bad_values_are_refused_with_a_reason(values: tuple[float, float, int], sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}"):
        Sampling(*values)


def test_the_greatest_seed_works() -> None:
    assert Sampling(1.0, 1.0, 2**63 - 1).generator().initial_seed() == 2**63 - 1
