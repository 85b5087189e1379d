"""Contract of a language model's runner: readings of sequences go in, logits and hidden states come out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

BATCHES = (2, 4, 8, 16, 32)
"""Sequences of the passes over several that have buffers of their own; others are filled up to the next."""


@dataclass(frozen=True, eq=False)
class Reading:
    """Tokens that one sequence reads in a pass, into its `row`, of the runner's own kind.

    `inputs` (n, width); `positions` (axes, n) of each token in the sequence, on the host; `sees` (n, length +
    n) bool, see `tree.sees`; `layers` (k, n, width), added behind the first k layers, of passes that read
    frames. The logits of the last `logits` of them are wanted. Inputs, positions and layers are as in
    `Chunk`.
    """

    row: Any
    inputs: Any
    positions: Any
    sees: np.ndarray
    layers: Any = None
    logits: int = 0

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def end(self) -> int:
        """Tokens of the sequence after the pass."""
        return self.row.length + len(self)


class Output(NamedTuple):
    """What a pass over a reading gives, good until the next pass.

    `logits` (k, vocabulary) are those that were wanted, of torch or numpy. A runner in torch also has the
    last hidden states (n, width), and the inputs of `tapped` layers (n, taps * width), if there are any.
    """

    logits: Any
    hidden: Any = None
    tapped: Any = None


class Runner(Protocol):
    """Language model with the keys and values of sequences; for one thread."""

    is_static: bool
    """Padding of passes to `SIZES`."""
    branches: bool
    """Trees may be drafted: a token's outputs do not depend on tokens beside its path."""
    taps: tuple[int, ...]
    """Decoder layers whose inputs are kept."""
    rows: int
    """Sequences that may be read in one pass."""

    def tap(self, layers: Sequence[int]) -> None:
        """Keep the inputs of these decoder layers; before `warm_up`."""

    def take(self) -> Any:
        """Return an empty row, to be given back, with the methods of `KVRow`."""

    def give_back(self, row: Any) -> None:
        """Take a row back for the next sequence."""

    def warm_up(self, count: int, together: int = 1) -> None:
        """Take the memory of `count` rows, of which up to `together` share a pass."""

    def release(self) -> None:
        """Give the memory back."""

    def fits(self, reading: Reading) -> bool:
        """Return whether it may share a pass."""

    def read(self, readings: Sequence[Reading]) -> Sequence[Output]:
        """Return the output of each sequence; several must all fit."""
