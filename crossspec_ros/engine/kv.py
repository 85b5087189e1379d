"""KV cache: rows that stay where they are; rolling back moves a length, not keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache

from crossspec_ros.models.base import to_device


class KVRow:
    """Keys and values of one sequence in all layers: row `index` of a pool, or memory of its own.

    `pooled` is the row's part (2, layers, heads, capacity, head size) of the pool. A sequence that outgrows
    its row moves to memory of its own, twice as long as it needs.
    """

    def __init__(
        self, layers: int, capacity: int, pooled: torch.Tensor | None = None, index: int = 0
    ) -> None:
        self.layers, self.index = layers, index
        self._capacity, self._pooled = capacity, pooled
        self.states = pooled
        """Memory of the row; None before the first tokens if it has no part of a pool."""
        self.length = 0
        """Tokens that count."""
        self.is_sound = True
        """False after a failed pass, whose keys and values may be NaN."""

    @property
    def is_pooled(self) -> bool:
        """Whether its memory is that of the pool."""
        return self._pooled is not None and self.states is self._pooled

    def room(self, like: torch.Tensor, length: int) -> torch.Tensor:
        """Return memory for this many tokens like these (1, heads, n, head size)."""
        before = self.states
        if before is None or length > before.shape[3]:
            capacity = self._capacity if length <= self._capacity else 2 * length
            # Masked keys and values are multiplied, so that they must be numbers.
            self.states = like.new_zeros(2, self.layers, like.shape[1], capacity, like.shape[3])
            if before is not None:
                self.states[..., : self.length, :] = before[..., : self.length, :]
            return self.states
        return before

    def keep(self, length: int, moved: Sequence[int] = ()) -> None:
        """Forget all behind the first `length` tokens, save those at the positions `moved`, which follow."""
        end = length + len(moved)
        # The path of a chain needs no move.
        if list(moved) != list(range(length, end)):
            assert self.states is not None
            places = to_device(torch.tensor(moved), self.states.device)
            self.states[..., length:end, :] = self.states.index_select(3, places)
        self.length = end

    def clear(self) -> None:
        """Make it as good as new, and give memory of its own back."""
        if self._pooled is not None and not self.is_sound:
            self._pooled.zero_()
        self.states, self.length, self.is_sound = self._pooled, 0, True


class RowCache(Cache):
    """One row in a pass: new keys and values go to its places `at`, and the first `seen` are attended to.

    A pass brings its own positions and mask, so that layers call only `update`.
    """

    def __init__(self, row: KVRow, at: slice | torch.Tensor, seen: int) -> None:
        super().__init__(layers=[])
        self._row, self._at, self._seen = row, at, seen

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = self._row.room(key_states, self._seen)[:, layer_idx, None]
        keys[:, :, self._at], values[:, :, self._at] = key_states, value_states
        return keys[:, :, : self._seen], values[:, :, : self._seen]


class RowsCache(Cache):
    """As `RowCache`, for `rows` (b,) of a pool (2, layers, rows, heads, capacity, head size).

    The keys and values of sequence i go to its places `at[i]` (b, n).
    """

    def __init__(self, states: torch.Tensor, rows: torch.Tensor, at: torch.Tensor, seen: int) -> None:
        super().__init__(layers=[])
        self._states, self._rows, self._at, self._seen = states, rows, at, seen

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = self._states[:, layer_idx]
        for memory, new in ((keys, key_states), (values, value_states)):
            memory[self._rows[:, None], :, self._at] = new.transpose(1, 2)
        keys, values = (memory[:, :, : self._seen].index_select(0, self._rows) for memory in (keys, values))
        return keys, values
