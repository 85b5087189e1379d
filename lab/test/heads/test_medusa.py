"""Medusa heads tell each depth from one state, and are read and written as vLLM has them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from crossspec_lab.heads.medusa import Medusa, read_medusa
from crossspec_lab.heads.saved import save_medusa
from plain_eagle import random_pairs
from safetensors.torch import load_file, save_file

from crossspec_ros.drafting.heads.head import Sizes
from crossspec_ros.drafting.heads.head_files import load_head
from crossspec_ros.drafting.proposer import Context
from crossspec_ros.models.pair import ModelPair


@pytest.fixture
def head(pair: ModelPair) -> Medusa:
    torch.manual_seed(0)
    head = Medusa(Sizes.of(pair.target, None))
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    return head


def told(head: Medusa, k: int, state: torch.Tensor) -> torch.Tensor:
    weights = head.state_dict()
    inner = state @ weights[f"blocks.{k}.layers.0.weight"].T
    return ((state + inner * inner.sigmoid()) @ weights[f"lm_heads.{k}.weight"].T).log_softmax(-1)


@torch.no_grad()
def test_each_head_tells_the_token_so_far_ahead(head: Medusa) -> None:
    pairs, q = random_pairs(head.sizes), 5
    losses = torch.zeros(4)
    counts = torch.zeros(4)
    for i, length in enumerate((9, 6, 3)):
        for token in range(length):
            for k in range(min(4, token + 1)):
                # It has read all tokens but the k before this one, and the one before those is known.
                probs = told(head, k, pairs.states[i, q - 2 + token - k])
                losses[k] -= probs[pairs.tokens[i, token]]
                counts[k] += 1
                if k == 0:
                    assert torch.allclose(head.logits(pairs)[i, token].log_softmax(-1), probs, atol=1e-4)
    wanted = sum(0.8**k * losses[k] / counts[k] for k in range(4))
    assert head.loss(pairs).item() == pytest.approx(float(wanted), rel=1e-4)


@torch.no_grad()
def test_it_drafts_from_the_last_state_that_it_read(head: Medusa) -> None:
    states = random_pairs(head.sizes).states[0]
    head.begin()
    assert not head.propose(Context(""), 60, 0.0).ids
    head.read((1, 2, 3), states[:3], None)
    head.read((4, 5), states[3:5], None)
    guess = head.propose(Context(""), 40, 0.0)
    probs = [told(head, k, states[4]).exp() for k in range(4)]
    depths: list[int] = []
    for token, parent, prob in zip(guess.ids, guess.parents, guess.probs, strict=True):
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
        assert prob == pytest.approx(float(probs[depths[-1]][token]), rel=1e-3)
    assert len(guess.ids) == 40 and guess.ids[0] == int(probs[0].argmax())
    head.begin()
    assert not head.propose(Context(""), 60, 0.0).ids


def test_there_and_back_no_bit_changes(head: Medusa, pair: ModelPair, tmp_path: Path) -> None:
    save_medusa(head.bfloat16(), tmp_path / "a")
    stored = load_file(tmp_path / "a" / "model.safetensors")
    before = {name: tensor.clone() for name, tensor in stored.items()}
    assert set(before) == {f"{name}.{i}.{rest}" for i in range(4) for name, rest in
                           (("blocks", "layers.0.weight"), ("lm_heads", "weight"))}  # fmt: skip
    # As Medusa's own training names them.
    old = {f"medusa_heads.{name}": one for name, one in before.items()}
    save_file(old, tmp_path / "a" / "model.safetensors")
    save_medusa(read_medusa(tmp_path / "a", pair.target), tmp_path / "b")
    after = load_file(tmp_path / "b" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(
        torch.equal(one, after[name]) and one.dtype == after[name].dtype for name, one in before.items()
    )
    assert load_head(tmp_path / "b", pair.target).dtype == pair.target.dtype
