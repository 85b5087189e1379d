"""A KV cache in one buffer that stays where it is: rolling back moves a length, not the keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from crossspec_ros.models.base import to_device


class _Layer(CacheLayerMixin):
    """Keys and values (1, heads, length, head size) of one layer of a KVBuffer."""

    def __init__(self, buffer: KVBuffer, index: int) -> None:
        super().__init__()
        self._buffer = buffer
        self._index = index
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        start, at = self.length, self._buffer.at
        end = start + key_states.shape[-2]
        keys, values = self._buffer.room(key_states, 0 if at is not None else end)[:, self._index, None]
        if at is not None:
            keys.index_copy_(2, at, key_states)
            values.index_copy_(2, at, value_states)
            return keys, values
        self.length = end
        keys[:, :, start:end] = key_states
        values[:, :, start:end] = value_states
        return keys[:, :, :end], values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return self._buffer.capacity


class KVBuffer(Cache):
    """One sequence's keys and values in all layers; it moves when it outgrows `capacity`.

    While `at` (n,) is set, new keys and values go to those places, all of the buffer is attended to, and
    `length` is the caller's business. Else they follow the last that counts.
    """

    def __init__(self, layers: int, capacity: int) -> None:
        self.capacity = capacity
        self.at: torch.Tensor | None = None
        # Keys and values of all layers: (2, layers, heads, capacity, head size).
        self._states: torch.Tensor | None = None
        self._buffers = [_Layer(self, index) for index in range(layers)]
        super().__init__(layers=[*self._buffers])

    @property
    def length(self) -> int:
        """Tokens that count."""
        return self._buffers[0].length

    @length.setter
    def length(self, length: int) -> None:
        for layer in self._buffers:
            layer.length = length

    def room(self, like: torch.Tensor, length: int) -> torch.Tensor:
        """The buffer, with room for so many tokens like these (1, heads, tokens, head size)."""
        if self._states is None or length > self.capacity:
            capacity = self.capacity if length <= self.capacity else 2 * length
            # Zeros: what is masked is multiplied all the same, and must be a number.
            states = like.new_zeros(2, len(self._buffers), like.shape[1], capacity, like.shape[3])
            if self._states is not None:
                states[..., : self.length, :] = self._states[..., : self.length, :]
            self._states, self.capacity = states, capacity
        return self._states

    def release(self) -> None:
        """Give the memory back now, and not when Python next looks for circles; the cache is empty then."""
        self.length, self._states = 0, None

    def keep(self, length: int, moved: Sequence[int] = ()) -> None:
        """Forget all behind the first `length` tokens, save those at the positions `moved`, which follow."""
        end = length + len(moved)
        # A path that lies where it must, as that of a chain does, needs no move.
        if list(moved) != list(range(length, end)):
            assert self._states is not None
            places = to_device(torch.tensor(moved), self._states.device)
            self._states[..., length:end, :] = self._states.index_select(3, places)
        self.length = end
