"""Reading on static buffers, as a graph does it, gives what reading as usual gives."""

from __future__ import annotations

import random

import pytest
import torch
from transformers import LlamaConfig, LlamaModel

from crossspec_ros.engine.kv import KVBuffer
from crossspec_ros.engine.pass_cost import SIZES
from crossspec_ros.engine.runner import ModelRunner
from crossspec_ros.engine.runner_pool import RunnerPool


@pytest.fixture(scope="module")
def model() -> LlamaModel:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=50
    )
    return LlamaModel(config).eval()


def random_pass(rng: random.Random, length: int, n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Inputs, positions and mask of `n` tokens: each sees what was read, itself, and any before it."""
    inputs = torch.randn(n, 32, generator=torch.Generator().manual_seed(rng.randrange(10**6)))
    seen = torch.ones(n, length + n, dtype=torch.bool)
    for i in range(n):
        for j in range(n):
            seen[i, length + j] = j == i or (j < i and rng.random() < 0.5)
    mask = torch.zeros(1, 1, n, length + n).masked_fill_(~seen, torch.finfo(torch.float32).min)
    return inputs, torch.tensor([[length + rng.randrange(i + 1) for i in range(n)]]), mask


@torch.inference_mode()
def test_static_and_usual_passes_agree_however_the_sequence_is_rolled_back(model: LlamaModel) -> None:
    rng = random.Random(0)
    static, usual = ModelRunner(model, 256, is_static=True), ModelRunner(model, 256, is_static=False)
    static.warm_up()
    sizes = [40, *(rng.choice([1, 2, 3, 5, 8, 17, 40, 70]) for _ in range(60)), 130, 3, 1]
    for n in sizes:
        given = random_pass(rng, usual.length, n)
        torch.testing.assert_close(static.read(*given), usual.read(*given), atol=2e-5, rtol=1e-4)
        length = rng.randrange(usual.length - n, usual.length + 1)
        moved = sorted(rng.sample(range(length, usual.length), rng.randrange(usual.length - length + 1)))
        if length + len(moved) > 230 and n != 130:
            length, moved = 20, []
        for runner in (static, usual):
            runner.keep(length, moved)
        assert static.length == usual.length == length + len(moved)
    assert set(static._steps) == set(SIZES)


@torch.inference_mode()
def test_a_sequence_that_outgrows_its_buffers_goes_on(model: LlamaModel) -> None:
    rng = random.Random(1)
    static, usual = ModelRunner(model, 32, is_static=True), ModelRunner(model, 32, is_static=False)
    static.warm_up()
    for n in (20, 4, 4, 3, 1, 4, 40, 2, 2):
        given = random_pass(rng, usual.length, n)
        torch.testing.assert_close(static.read(*given), usual.read(*given), atol=2e-5, rtol=1e-4)
    assert static.length == usual.length == 80


@torch.inference_mode()
def test_a_sequence_that_fills_its_buffers_to_the_last_place_goes_on_in_them(model: LlamaModel) -> None:
    rng = random.Random(3)
    static, usual = ModelRunner(model, 32, is_static=True), ModelRunner(model, 32, is_static=False)
    static.warm_up()
    for n, kept in ((20, 20), (12, 32), (0, 22), (4, 26), (5, 31), (1, 32)):
        if n:
            given = random_pass(rng, usual.length, n)
            torch.testing.assert_close(static.read(*given), usual.read(*given), atol=2e-5, rtol=1e-4)
        for runner in (static, usual):
            runner.keep(kept)
    assert static.capacity == 32 and set(static._steps) == set(SIZES)


@torch.inference_mode()
def test_buffers_come_back_empty_when_their_sequence_has_ended(
    model: LlamaModel, caplog: pytest.LogCaptureFixture
) -> None:
    pool = RunnerPool(model, 512, is_static=True)
    pool.warm_up(1)
    taken = pool.take()
    assert set(taken._steps) == set(SIZES) and taken.length == 0
    taken.read(*random_pass(random.Random(2), 0, 5))
    assert not caplog.records
    assert pool.take() is not taken
    assert "more than was warmed up for" in caplog.text
    pool.give_back(taken)
    assert pool.take() is taken and taken.length == 0


@torch.inference_mode()
def test_a_runner_that_failed_or_has_grown_serves_nobody_again(
    model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = RunnerPool(model, 32, is_static=False)

    def no_memory(*args: object, **kwargs: object) -> None:
        raise torch.OutOfMemoryError("no memory")

    with pool.lend() as failed, monkeypatch.context() as patch:
        failed.read(*random_pass(random.Random(3), 0, 20))
        patch.setattr(KVBuffer, "room", no_memory)
        with pytest.raises(torch.OutOfMemoryError):
            failed.read(*random_pass(random.Random(3), 20, 20))
    with pool.lend() as grown:
        assert grown is not failed
        grown.read(*random_pass(random.Random(4), 0, 40))
    with pool.lend() as last:
        assert last is not grown and last.capacity == 32
    with pool.lend() as again:
        assert again is last
