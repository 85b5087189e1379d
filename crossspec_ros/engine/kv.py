"""KV cache of rows at fixed addresses; a rollback changes a row's length and moves no keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache

from crossspec_ros.models.base import to_device


class KVRow:
    """Keys and values of one sequence in all layers, in row `index` of a pool or in separate memory.

    `pooled` is the row's part (2, layers, heads, capacity, head size) of the pool. A sequence that outgrows
    it moves to separate memory with twice the needed length.
    """

    def __init__(
        self, layers: int, capacity: int, pooled: torch.Tensor | None = None, index: int = 0
    ) -> None:
        self.layers, self.index = layers, index
        self._capacity, self._pooled = capacity, pooled
        self.states = pooled
        """Memory of the row; None before the first tokens if the row is not in a pool."""
        self.length = 0
        """Number of valid tokens."""
        self.is_valid = True
        """False after a failed pass, because its keys and values may be NaN."""

    @property
    def is_pooled(self) -> bool:
        """Whether the memory belongs to the pool."""
        return self._pooled is not None and self.states is self._pooled

    def reserve(self, like: torch.Tensor, length: int) -> torch.Tensor:
        """Return memory for `length` tokens of the kind of `like` (1, heads, n, head size)."""
        before = self.states
        if before is None or length > before.shape[3]:
            capacity = self._capacity if length <= self._capacity else 2 * length
            # Zeros, because attention also multiplies masked keys and values, and 0 x NaN is NaN.
            self.states = like.new_zeros(2, self.layers, like.shape[1], capacity, like.shape[3])
            if before is not None:
                self.states[..., : self.length, :] = before[..., : self.length, :]
            return self.states
        return before

    def keep(self, length: int, moved: Sequence[int] = ()) -> None:
        """Keep the first `length` tokens and, after them, those at the indices `moved`."""
        end = length + len(moved)
        # The accepted path of a chain is in place already.
        if list(moved) != list(range(length, end)):
            assert self.states is not None
            indices = to_device(torch.tensor(moved), self.states.device)
            self.states[..., length:end, :] = self.states.index_select(3, indices)
        self.length = end

    def clear(self) -> None:
        """Empty the row, and free memory outside the pool."""
        if self._pooled is not None and not self.is_valid:
            self._pooled.zero_()
        self.states, self.length, self.is_valid = self._pooled, 0, True


class RowCache(Cache):
    """One row in a pass: layers write keys and values at the indices `at`, and attend to the first `seen`.

    The pass has explicit positions and a mask, so layers call only `update`.
    """

    def __init__(self, row: KVRow, at: slice | torch.Tensor, seen: int) -> None:
        super().__init__(layers=[])
        self._row, self._at, self._seen = row, at, seen

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = self._row.reserve(key_states, self._seen)[:, layer_idx, None]
        keys[:, :, self._at], values[:, :, self._at] = key_states, value_states
        return keys[:, :, : self._seen], values[:, :, : self._seen]


class RowsCache(Cache):
    """`RowCache` for several `rows` (b,) of a pool (2, layers, rows, heads, capacity, head size).

    Sequence i writes its keys and values at the indices `at[i]`; `at` is (b, n).
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
