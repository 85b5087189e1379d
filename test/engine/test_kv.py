"""Keys and values are where they belong, however the buffer was rolled back, gathered and outgrown."""

from __future__ import annotations

import gc
import random
import weakref

import torch

from crossspec_ros.engine.kv import KVBuffer


def states(tokens: list[int]) -> torch.Tensor:
    """(1, 2 heads, tokens, 3) of values that tell the token."""
    return torch.tensor(tokens, dtype=torch.float32)[None, None, :, None].expand(1, 2, -1, 3)


def test_it_holds_what_a_list_would_hold() -> None:
    rng = random.Random(0)
    cache, held, serial = KVBuffer(layers=2, capacity=4), [], 0
    for _ in range(200):
        new = [serial + i for i in range(rng.randrange(1, 6))]
        serial += len(new)
        held += new
        for layer in range(2):
            keys, values = cache.update(states(new), -states(new), layer)
            assert torch.equal(keys, states(held)) and torch.equal(values, -states(held))
        assert cache.length == cache.get_seq_length() == len(held)
        length = rng.randrange(max(0, len(held) - 6), len(held) + 1)
        moved = sorted(rng.sample(range(length, len(held)), rng.randrange(0, len(held) - length + 1)))
        cache.keep(length, moved)
        held = held[:length] + [held[i] for i in moved]


def test_rolling_back_copies_nothing() -> None:
    cache = KVBuffer(layers=1, capacity=8)
    keys, _ = cache.update(states([1, 2, 3, 4]), states([1, 2, 3, 4]), 0)
    cache.keep(2, [2])
    again, _ = cache.update(states([9]), states([9]), 0)
    assert again.data_ptr() == keys.data_ptr() and again[0, 0, :, 0].tolist() == [1, 2, 3, 9]


def test_its_memory_goes_when_it_is_released() -> None:
    cache = KVBuffer(layers=2, capacity=8)
    cache.update(states([1]), states([1]), 0)
    freed = weakref.ref(cache._states)
    gc.disable()
    try:
        cache.release()
        assert freed() is None and cache.length == 0
    finally:
        gc.enable()
