"""Contract of a runner: it executes forward passes of a language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

BATCHES = (2, 4, 8, 16, 32)
"""Numbers of sequences in shared passes with static buffers; other numbers are padded to the next."""


@dataclass(frozen=True, eq=False)
class Input:
    """Input of a pass for one sequence of n tokens; see also `Chunk`.

    Attributes:
        row: KV row of the sequence, as the runner's `take` returns it.
        embeds: (n, width).
        positions: (axes, n) in the sequence, on the host.
        attention_mask: (n, row's length + n) bool, see `tree.attention_mask`.
        layers: (k, n, width) features of frames that are added after the first k layers, or None.
        logits: number of last tokens whose logits are requested.
    """

    row: Any
    embeds: Any
    positions: Any
    attention_mask: np.ndarray
    layers: Any = None
    logits: int = 0

    def __len__(self) -> int:
        return len(self.embeds)

    @property
    def end(self) -> int:
        """Length of the sequence after the pass."""
        return self.row.length + len(self)


class Output(NamedTuple):
    """Output of a pass for one sequence, valid until the next pass.

    `logits` (k, vocabulary) are the requested ones, in torch or numpy. A runner in torch also returns the
    last `hidden` states (n, width), and the inputs of any `tapped` layers (n, taps * width).
    """

    logits: Any
    hidden: Any = None
    tapped: Any = None


class Runner(Protocol):
    """Language model with the KV rows of its sequences. Not thread-safe."""

    is_static: bool
    """Whether passes are padded to `SIZES`."""
    branches: bool
    """Whether drafts may be trees: a token's logits do not depend on tokens outside its path."""
    taps: tuple[int, ...]
    """Decoder layers whose inputs are returned."""
    rows: int
    """Largest number of sequences in a pass."""

    def tap(self, layers: Sequence[int]) -> None:
        """Return the inputs of these decoder layers with each output; call it before `warm_up`."""

    def take(self) -> Any:
        """Return an empty row with the methods of `KVRow`; `give_back` returns it to the runner."""

    def give_back(self, row: Any) -> None:
        """Empty a row for the next sequence."""

    def warm_up(self, count: int, together: int = 1) -> None:
        """Allocate `count` rows, of which up to `together` share a pass."""

    def release(self) -> None:
        """Free the memory."""

    def can_batch(self, input_: Input) -> bool:
        """Return whether this input may share a pass."""

    def read(self, inputs: Sequence[Input]) -> Sequence[Output]:
        """Run a pass and return the output of each sequence; several inputs must all pass `can_batch`."""
