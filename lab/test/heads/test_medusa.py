"""Medusa heads predict each depth from one state."""

from __future__ import annotations

import pytest
import torch
from crossspec_lab.heads.head import Sizes
from crossspec_lab.heads.medusa import Medusa
from plain_eagle import random_pairs

from crossspec_ros.drafting.proposer import Context
from crossspec_ros.models.pair import ModelPair


@pytest.fixture
def head(pair: ModelPair) -> Medusa:
    torch.manual_seed(0)
    head = Medusa(Sizes.of(pair.target, None))
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    return head


def log_probs(head: Medusa, k: int, state: torch.Tensor) -> torch.Tensor:
    weights = head.state_dict()
    inner = state @ weights[f"blocks.{k}.layers.0.weight"].T
    return ((state + inner * inner.sigmoid()) @ weights[f"lm_heads.{k}.weight"].T).log_softmax(-1)


@torch.no_grad()
def test_loss_and_logits_equal_the_plain_arithmetic(head: Medusa) -> None:
    pairs, q = random_pairs(head.sizes), 5
    losses, counts = torch.zeros(4), torch.zeros(4)
    for i, length in enumerate((9, 6, 3)):
        for token in range(length):
            for k in range(min(4, token + 1)):
                # Head k reads the state at which the target chose the token k + 1 places before.
                probs = log_probs(head, k, pairs.states[i, q - 2 + token - k])
                losses[k] -= probs[pairs.tokens[i, token]]
                counts[k] += 1
                if k == 0:
                    assert torch.allclose(head.logits(pairs)[i, token].log_softmax(-1), probs, atol=1e-4)
    wanted = sum(0.8**k * losses[k] / counts[k] for k in range(4))
    assert head.loss(pairs).item() == pytest.approx(float(wanted), rel=1e-4)


@torch.no_grad()
def test_draft_comes_from_the_last_state(head: Medusa) -> None:
    states = random_pairs(head.sizes).states[0]
    head.begin()
    assert not len(head.propose(Context(""), 60, 0.0))
    head.read((1, 2, 3), states[:3], None)
    head.read((4, 5), states[3:5], None)
    guess = head.propose(Context(""), 40, 0.0)
    probs = [log_probs(head, k, states[4]).exp() for k in range(4)]
    wanted = [float(probs[d - 1][token]) for d, token in zip(guess.depths(), guess.token_ids, strict=True)]
    assert guess.probs == pytest.approx(wanted, rel=1e-3)
    assert len(guess) == 40 and guess.token_ids[0] == int(probs[0].argmax())
