"""KV rows keep the right tokens, and static passes equal dynamic ones."""

from __future__ import annotations

import random
import weakref

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaModel

from crossspec_ros.engine.kv import KVRow, RowCache
from crossspec_ros.engine.model_runner import ModelRunner
from crossspec_ros.engine.pass_cost import SIZES
from crossspec_ros.engine.runner import Input


def states(tokens):
    """Return (1, 2 heads, tokens, 3) values that identify the tokens."""
    return torch.tensor(tokens, dtype=torch.float32)[None, None, :, None].expand(1, 2, -1, 3)


def appended(row, tokens):
    """Return the keys and values of each layer after a pass over these tokens."""
    end = row.length + len(tokens)
    cache = RowCache(row, slice(row.length, end), end)
    row_layers = [cache.update(states(tokens), -states(tokens), layer) for layer in range(row.layers)]
    row.length = end
    return row_layers


@pytest.mark.parametrize("pooled", [None, torch.zeros(2, 2, 2, 4, 3)])
def test_row_equals_list(pooled):
    rng = random.Random(0)
    row = KVRow(2, 4, pooled)
    for _ in range(3):
        held = []
        serial = 0
        for _ in range(60):
            new = [serial + i for i in range(rng.randrange(1, 6))]
            serial += len(new)
            held += new
            for keys, values in appended(row, new):
                assert torch.equal(keys, states(held)) and torch.equal(values, -states(held))
            length = rng.randrange(max(0, len(held) - 6), len(held) + 1)
            moved = sorted(rng.sample(range(length, len(held)), rng.randrange(0, len(held) - length + 1)))
            row.keep(length, moved)
            held = held[:length] + [held[i] for i in moved]
            assert row.length == len(held)
        assert not row.is_pooled
        row.clear()


def test_rolling_back_copies_nothing():
    row = KVRow(1, 8)
    [(keys, _)] = appended(row, [1, 2, 3, 4])
    row.keep(2, [2])
    [(again, _)] = appended(row, [9])
    assert again.data_ptr() == keys.data_ptr() and again[0, 0, :, 0].tolist() == [1, 2, 3, 9]
    other = KVRow(2, 8)
    appended(other, [1])
    freed = weakref.ref(other.states)
    other.clear()
    assert freed() is None and other.length == 0


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=50
    )
    return LlamaModel(config).eval()


def random_pass(rng, length, n):
    """Return embeddings, positions and mask of `n` tokens, each of which attends to some before it."""
    embeds = torch.randn(n, 32, generator=torch.Generator().manual_seed(rng.randrange(10**6)))
    mask = np.ones((n, length + n), bool)
    for i in range(n):
        for j in range(n):
            mask[i, length + j] = j == i or (j < i and rng.random() < 0.5)
    return embeds, torch.tensor([[length + rng.randrange(i + 1) for i in range(n)]]), mask


class Both:
    """One sequence in a warm static row, and the same sequence outside a pool, with equal outputs."""

    def __init__(self, model, capacity, robots=1):
        self.runners = [ModelRunner(model, capacity, is_static) for is_static in (True, False)]
        self.runners[0].warm_up(robots, robots)
        self.rows = [runner.take() for runner in self.runners]

    def read(self, rng, n):
        passed = random_pass(rng, self.length, n)
        [static], [usual] = (
            runner.read([Input(row, *passed)]) for runner, row in zip(self.runners, self.rows, strict=True)
        )
        torch.testing.assert_close(static.hidden, usual.hidden, atol=2e-5, rtol=1e-4)

    def keep(self, length, moved=None):
        for row in self.rows:
            row.keep(length, moved or [])

    @property
    def length(self):
        assert self.rows[0].length == self.rows[1].length
        return self.rows[0].length


@pytest.mark.parametrize(("robots", "batches"), [(1, 1), (2, 2), (8, 4)])
@torch.inference_mode()
def test_static_passes_equal_dynamic(model, robots, batches):
    rng, both = random.Random(0), Both(model, 256, robots)
    # The number of graphs does not grow with the number of rows.
    assert len(both.runners[0].static) == batches * len(SIZES)
    for n in [40, *(rng.choice([1, 2, 3, 5, 8, 17, 40, 70]) for _ in range(60)), 130, 3, 1]:
        both.read(rng, n)
        length = rng.randrange(both.length - n, both.length + 1)
        moved = sorted(rng.sample(range(length, both.length), rng.randrange(both.length - length + 1)))
        if length + len(moved) > 230 and n != 130:
            length, moved = 20, []
        both.keep(length, moved)
    assert both.rows[0].is_pooled


@torch.inference_mode()
def test_sequence_may_outgrow_its_row(model):
    rng, both = random.Random(3), Both(model, 32)
    for n, kept in ((20, 20), (12, 32), (0, 22), (4, 26), (5, 31), (1, 32), (0, 31)):
        if n:
            both.read(rng, n)
        both.keep(kept)
    assert both.rows[0].is_pooled
    for n in (3, 1, 4, 40, 2, 2):
        both.read(rng, n)
    assert both.length == 83 and not both.rows[0].is_pooled
    # A short sequence does not return to the pool.
    both.keep(10)
    for n in (2, 3):
        both.read(rng, n)


@torch.inference_mode()
def test_rows_come_back_empty(model, caplog):
    runner = ModelRunner(model, 64, is_static=True)
    runner.warm_up(1)
    row = runner.take()
    runner.read([Input(row, *random_pass(random.Random(2), 0, 5))])
    assert not caplog.records
    further = runner.take()
    assert further is not row and "more sequences than at warm-up" in caplog.text
    runner.give_back(further)
    runner.give_back(row)
    with runner.lend() as grown:
        assert grown is row and row.length == 0
        runner.read([Input(row, *random_pass(random.Random(2), 0, 80))])
        assert not row.is_pooled

    def fail():
        with runner.lend() as failed:
            assert failed is row and row.states is not None and row.is_pooled
            row.states[:] = torch.nan
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with runner.lend() as row:
        [output] = runner.read([Input(row, *random_pass(random.Random(2), 0, 5))])
        assert output.hidden.isfinite().all()
