"""Medusa heads tell each depth from one state, and are read and written as vLLM has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from crossspec_lab.heads.head import Sizes
from crossspec_lab.heads.head_files import load_head
from crossspec_lab.heads.medusa import Medusa, read_medusa
from plain_eagle import random_pairs
from safetensors.torch import save_file

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
    assert not len(head.propose(Context(""), 60, 0.0))
    head.read((1, 2, 3), states[:3], None)
    head.read((4, 5), states[3:5], None)
    guess = head.propose(Context(""), 40, 0.0)
    probs = [told(head, k, states[4]).exp() for k in range(4)]
    depths: list[int] = []
    for token, parent, prob in zip(guess.token_ids, guess.parents, guess.probs, strict=True):
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
        assert prob == pytest.approx(float(probs[depths[-1]][token]), rel=1e-3)
    assert len(guess.token_ids) == 40 and guess.token_ids[0] == int(probs[0].argmax())
    head.begin()
    assert not len(head.propose(Context(""), 60, 0.0))


@pytest.mark.parametrize("prefix", ["", "medusa_heads."])
def test_a_published_head_is_read(head: Medusa, pair: ModelPair, tmp_path: Path, prefix: str) -> None:
    """In vLLM's format, and with the names of Medusa's own training."""
    tensors = head.bfloat16().state_dict()
    save_file({prefix + name: one for name, one in tensors.items()}, tmp_path / "model.safetensors")
    config = {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": head.sizes.width,
        "vocab_size": head.sizes.tokens,
        "truncated_vocab_size": head.sizes.tokens,
        "num_heads": len(head.blocks),
        "num_hidden_layers": head.options["layers"],
        "medusa_fc_bias": head.options["bias"],
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    stored = read_medusa(tmp_path, pair.target).state_dict()
    assert stored.keys() == tensors.keys()
    assert all(torch.equal(one, stored[name]) for name, one in tensors.items())
    assert load_head(tmp_path, pair.target).dtype == pair.target.dtype
