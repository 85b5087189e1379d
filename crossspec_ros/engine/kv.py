"""KV cache: rows of one pool that stay where they are; rolling back moves a length, not keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache

from crossspec_ros.models.base import to_device


class KVPool:
    """One buffer with a row for each sequence, so that one pass can read for several of them.

    `states` are (2, layers, rows, heads, capacity, head size), taken with the first tokens.
    """

    def __init__(self, layers: int, capacity: int, rows: int) -> None:
        self.states: torch.Tensor | None = None
        self._layers, self._capacity = layers, capacity
        self.rows = [KVRow(layers, capacity, self, index) for index in range(rows)]

    def row(self, index: int, like: torch.Tensor) -> torch.Tensor:
        """The (2, layers, heads, capacity, head size) memory of one row, for tokens like these
        (1, heads, n, head size)."""
        if self.states is None:
            # Zeros: what is masked is multiplied all the same, and must be a number.
            shape = 2, self._layers, len(self.rows), like.shape[1], self._capacity, like.shape[3]
            self.states = like.new_zeros(shape)
        return self.states[:, :, index]


class KVRow:
    """Keys and values of one sequence in all layers: row `index` of a pool, or memory of its own.

    A sequence that outgrows its row moves to memory of its own, twice as long as it needs.
    """

    def __init__(self, layers: int, capacity: int, pool: KVPool | None = None, index: int = 0) -> None:
        self.layers, self.index = layers, index
        self.capacity = self._usual = capacity
        self.length = 0
        """Tokens that count."""
        self.is_pooled = False
        """Whether its memory is that of the pool: not before a first pass, nor once it has grown."""
        self.is_sound = True
        """False after a pass that failed half way: nobody knows what is in its memory."""
        self._pool = pool
        self._states: torch.Tensor | None = None

    def room(self, like: torch.Tensor, length: int) -> torch.Tensor:
        """Memory (2, layers, heads, capacity, head size) for so many tokens like these
        (1, heads, n, head size)."""
        if self._states is None and self._pool is not None and length <= self.capacity:
            self._states, self.is_pooled = self._pool.row(self.index, like), True
        elif self._states is None or length > self.capacity:
            capacity = self.capacity if length <= self.capacity else 2 * length
            states = like.new_zeros(2, self.layers, like.shape[1], capacity, like.shape[3])
            if self._states is not None:
                states[..., : self.length, :] = self._states[..., : self.length, :]
            self._states, self.capacity, self.is_pooled = states, capacity, False
        return self._states

    def keep(self, length: int, moved: Sequence[int] = ()) -> None:
        """Forget all behind the first `length` tokens, save those at the positions `moved`, which follow."""
        end = length + len(moved)
        # A path that lies where it must, as that of a chain does, needs no move.
        if list(moved) != list(range(length, end)):
            assert self._states is not None
            places = to_device(torch.tensor(moved), self._states.device)
            self._states[..., length:end, :] = self._states.index_select(3, places)
        self.length = end

    def clear(self) -> None:
        """Make it as good as new; memory of its own is given back now."""
        if not self.is_pooled:
            self._states, self.capacity = None, self._usual
        elif not self.is_sound and self._states is not None:
            self._states.zero_()
        self.length, self.is_sound = 0, True


class RowCache(Cache):
    """One row in a pass: its new keys and values follow the `length` that count, which the caller moves on.

    With places `at` (n,) they go there, and all of the row is attended to. A pass brings its own positions
    and mask, so that layers ask a cache for nothing but `update`.
    """

    def __init__(self, row: KVRow, tokens: int, at: torch.Tensor | None = None) -> None:
        super().__init__(layers=[])
        self._row, self._at = row, at
        self._begin, self._end = row.length, row.length + tokens

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self._at is not None:
            keys, values = self._row.room(key_states, 0)[:, layer_idx, None]
            keys.index_copy_(2, self._at, key_states)
            values.index_copy_(2, self._at, value_states)
            return keys, values
        keys, values = self._row.room(key_states, self._end)[:, layer_idx, None, :, : self._end]
        keys[:, :, self._begin :] = key_states
        values[:, :, self._begin :] = value_states
        return keys, values


class RowsCache(Cache):
    """Some `rows` (b,) of a pool's `states`: row i's new keys and values go to its places `at[i]` (b, n), and
    of each row the first `seen` places are attended to, as a mask says."""

    def __init__(self, states: torch.Tensor, rows: torch.Tensor, at: torch.Tensor, seen: int) -> None:
        super().__init__(layers=[])
        self._states, self._rows, self._at, self._seen = states, rows, at, seen

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = self._states[:, layer_idx]
        for all_rows, new in ((keys, key_states), (values, value_states)):
            all_rows[self._rows[:, None], :, self._at] = new.transpose(1, 2)
        keys, values = (one[:, :, : self._seen].index_select(0, self._rows) for one in (keys, values))
        return keys, values
