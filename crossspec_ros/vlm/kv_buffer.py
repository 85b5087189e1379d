"""A KV cache in buffers that stay where they are: rolling back moves a length, not the keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


class _Layer(CacheLayerMixin):
    """Keys and values (1, heads, capacity, head size), of which the first `length` positions count."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity, self.length = capacity, 0
        self.at: torch.Tensor | None = None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys, self.values = self._room(key_states), self._room(value_states)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        if self.at is not None:
            self.keys.index_copy_(2, self.at, key_states)
            self.values.index_copy_(2, self.at, value_states)
            return self.keys, self.values
        start, self.length = self.length, self.length + key_states.shape[-2]
        if self.length > self.capacity:
            self.capacity = 2 * self.length
            self.keys, self.values = self._moved(self.keys, start), self._moved(self.values, start)
        self.keys[:, :, start : self.length] = key_states
        self.values[:, :, start : self.length] = value_states
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def _room(self, states: torch.Tensor) -> torch.Tensor:
        # Zeros: what is masked is multiplied all the same, and must be a number.
        return states.new_zeros((*states.shape[:2], self.capacity, states.shape[3]))

    def _moved(self, buffer: torch.Tensor, used: int) -> torch.Tensor:
        room = self._room(buffer)
        room[:, :, :used] = buffer[:, :, :used]
        return room

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return self.capacity


class KVBuffer(Cache):
    """One sequence's keys and values in all layers; it moves when it outgrows `capacity`."""

    def __init__(self, layers: int, capacity: int) -> None:
        self._buffers = [_Layer(capacity) for _ in range(layers)]
        super().__init__(layers=self._buffers)

    @property
    def length(self) -> int:
        """Tokens that count."""
        return self._buffers[0].length

    @length.setter
    def length(self, length: int) -> None:
        for layer in self._buffers:
            layer.length = length

    @property
    def capacity(self) -> int:
        """Tokens for which there is room without moving."""
        return self._buffers[0].capacity

    @property
    def is_placed(self) -> bool:
        """Whether there are buffers yet; the first tokens decide of what kind."""
        return self._buffers[0].is_initialized

    def place(self, at: torch.Tensor | None) -> None:
        """From now on write keys and values to the positions `at` (n,) and give whole buffers to attend to.

        `length` is then the caller's business. With None they follow the last that counts, as usual.
        """
        for layer in self._buffers:
            layer.at = at

    def keep(self, length: int, moved: Sequence[int] = ()) -> None:
        """Forget all behind the first `length` tokens, save those at the positions `moved`, which follow."""
        end = length + len(moved)
        # A path that lies where it must, as that of a chain does, needs no move.
        if list(moved) != list(range(length, end)):
            for layer in self._buffers:
                for buffer in (layer.keys, layer.values):
                    assert buffer is not None
                    buffer[:, :, length:end] = buffer[:, :, list(moved)]
        self.length = end
