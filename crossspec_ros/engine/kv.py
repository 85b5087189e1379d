"""KV caches in buffers that stay where they are: rolling back moves a length, not the keys and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    `length` is the caller's business. Else they follow the last that counts. Its first memory is what `take`
    gives for tokens like these (1, heads, n, head size), or its own.
    """

    def __init__(
        self, layers: int, capacity: int, take: Callable[[torch.Tensor], torch.Tensor] | None = None
    ) -> None:
        self.capacity = capacity
        self.at: torch.Tensor | None = None
        self._take = take
        self.is_taken = False
        """Whether its memory is that of `take`, and no other."""
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
        if self._states is None and length <= self.capacity and self._take is not None:
            self._states, self.is_taken = self._take(like), True
        elif self._states is None or length > self.capacity:
            capacity = self.capacity if length <= self.capacity else 2 * length
            # Zeros: what is masked is multiplied all the same, and must be a number.
            states = like.new_zeros(2, len(self._buffers), like.shape[1], capacity, like.shape[3])
            if self._states is not None:
                states[..., : self.length, :] = self._states[..., : self.length, :]
            self._states, self.capacity, self.is_taken = states, capacity, False
        return self._states

    def release(self) -> None:
        """Give the memory back now, and not when Python next looks for circles; the cache is empty then."""
        self.length, self._states, self.is_taken = 0, None, False

    def keep(self, length: int, moved: Sequence[int] = ()) -> None:
        """Forget all behind the first `length` tokens, save those at the positions `moved`, which follow."""
        end = length + len(moved)
        # A path that lies where it must, as that of a chain does, needs no move.
        if list(moved) != list(range(length, end)):
            assert self._states is not None
            places = to_device(torch.tensor(moved), self._states.device)
            self._states[..., length:end, :] = self._states.index_select(3, places)
        self.length = end


class KVPool:
    """One buffer with a row for each sequence, so that one pass can read for several of them.

    `states` are (2, layers, rows, heads, capacity, head size), taken with the first row.
    """

    def __init__(self, layers: int, capacity: int, rows: int) -> None:
        self.layers, self.capacity, self.rows = layers, capacity, rows
        self.states: torch.Tensor | None = None

    def row(self, index: int, like: torch.Tensor) -> torch.Tensor:
        """The (2, layers, heads, capacity, head size) memory of one row, for tokens like these
        (1, heads, n, head size)."""
        if self.states is None:
            # Zeros: see `KVBuffer.room`.
            shape = 2, self.layers, self.rows, like.shape[1], self.capacity, like.shape[3]
            self.states = like.new_zeros(shape)
        return self.states[:, :, index]


class _RowsLayer(CacheLayerMixin):
    """Keys and values (rows, heads, seen, head size) of one layer of some rows of a pool."""

    def __init__(self, cache: RowsCache, index: int) -> None:
        super().__init__()
        self._rows, self._index = cache, index

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        cache = self._rows
        keys, values = cache.states[:, self._index]
        for all_rows, new in ((keys, key_states), (values, value_states)):
            all_rows[cache.rows[:, None], :, cache.at] = new.transpose(1, 2)
        keys, values = (one[:, :, : cache.seen].index_select(0, cache.rows) for one in (keys, values))
        return keys, values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._rows.seen, 0

    def get_seq_length(self) -> int:
        return self._rows.seen - self._rows.at.shape[1]

    def get_max_length(self) -> int:
        return self._rows.states.shape[4]


class RowsCache(Cache):
    """Some `rows` (b,) of a pool's `states` in one pass: row i's new keys and values go to its places
    `at[i]` (b, n), and of each row the first `seen` places are attended to, as a mask says.

    It keeps no length: a sequence that was read has the places it was given.
    """

    def __init__(self, states: torch.Tensor, rows: torch.Tensor, at: torch.Tensor, seen: int) -> None:
        self.states, self.rows, self.at, self.seen = states, rows, at, seen
        super().__init__(layers=[_RowsLayer(self, index) for index in range(states.shape[1])])
