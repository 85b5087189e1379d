"""EAGLE-3 heads compute what `plain_eagle.py` writes out, in training and when they draft."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from crossspec_lab.heads.eagle import Eagle
from crossspec_lab.heads.head import Pairs, Sizes
from plain_eagle import QWEN3, PlainEagle, random_pairs

from crossspec_ros.drafting.proposer import Context
from crossspec_ros.models.pair import ModelPair

OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"norm_before_residual": True, "draft_vocabulary": 400, "layer": QWEN3},
    {"norm_before_fc": True, "norm_output": True},
    {"fc_norm": True, "taps": [4, 0, 0, 2]},
)


@pytest.fixture(params=OPTIONS, ids=lambda options: "-".join(options) or "default")
def head(request: pytest.FixtureRequest, pair: ModelPair) -> Eagle:
    torch.manual_seed(1)
    head = Eagle(Sizes.of(pair.target, None), **{"unroll": 3, **request.param})
    for name, parameter in head.named_parameters():
        # So large that its layer, norms and fed back outputs matter.
        with torch.no_grad():
            parameter.mul_(4) if parameter.dim() > 1 and "fc" not in name else parameter.add_(0.1)
    if head.options["draft_vocabulary"] == 400:
        head.d2t.copy_(torch.randperm(577)[:400].sort().values - torch.arange(400))
    head.load(pair.target)
    return head.eval()


def pairs_for(head: Eagle) -> Pairs:
    return random_pairs(head.sizes, taps=len(head.taps))


@torch.no_grad()
def test_logits_equal_the_plain_arithmetic(head: Eagle) -> None:
    pairs, plain, q = pairs_for(head), PlainEagle(head), 5
    logits, spoken = head.logits(pairs), head.spoken
    for i, length in enumerate((9, 6, 3)):
        features = plain.features(pairs.taps[i])
        following = [*pairs.question[1:].tolist(), *pairs.tokens[i].tolist()]
        for token in (0, 1, length - 1):
            rows = q - 1 + token
            wanted = plain.log_probs(plain.chain(following[:rows], features[:rows], ()))
            found = logits[i, token].log_softmax(-1)
            assert torch.allclose(found[spoken].double(), wanted, atol=2e-3)
            assert found[spoken].exp().sum().item() == pytest.approx(1, abs=1e-3)


@torch.inference_mode()
@pytest.mark.parametrize("cuts", [(8,), (4, 5, 8), (5, 6, 7, 8)])
def test_tree_equals_plain_arithmetic(head: Eagle, cuts: tuple[int, ...]) -> None:
    pairs, plain, spoken = pairs_for(head), PlainEagle(head), head.spoken
    following = [*pairs.question[1:].tolist(), *pairs.tokens[0].tolist()]
    features = plain.features(pairs.taps[0])
    context = Context("", frames=tuple(pairs.frames[0].split(4)))
    for _ in range(2):
        # Earlier drafts leave nothing behind.
        begin = 0
        head.begin()
        assert not len(head.propose(context, 60, 0.0))
        for end in cuts:
            rows = slice(begin, end)
            head.read(tuple(following[rows]), pairs.states[0, rows], pairs.taps[0, rows])
            begin = end
            guess = head.propose(context, 30, 1e-6)
    place = {int(token): n for n, token in enumerate(spoken)}
    paths = [tuple(guess.token_ids[node] for node in guess.path(i)) for i in range(len(guess))]
    assert len(set(paths)) == len(paths) and 1 < max(map(len, paths)) <= 7
    for path, prob in zip(paths, guess.probs, strict=True):
        made = plain.chain(following[:8], features[:8], path[:-1])
        assert math.log(prob) == pytest.approx(plain.log_probs(made)[place[path[-1]]].item(), abs=5e-3)
    best = plain.log_probs(plain.chain(following[:8], features[:8], ())).topk(3).indices
    assert [int(spoken[n]) for n in best] == [path[0] for path in paths if len(path) == 1][:3]
