"""The last captions to a question, and the table by which `context_mixing` finds what followed in them."""

from __future__ import annotations

from collections import deque

import numpy as np

from crossspec_ros.drafting.context_mixing import KINDS, START, add

_FEWEST = 1024
"""Places of the smallest table; a power of two, as the number of slots must be."""
_SLOTS = 16
"""For each place; a power of two. Each takes up to KINDS, and there must be a free one."""
assert _SLOTS > KINDS

Table = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class CaptionTable:
    """The last `capacity` captions; what it forgets leaves no trace in what it finds.

    `arrays` are for `context_mixing`, which is to look at no place before `oldest`. Where the places are used
    up, the captions that are left are entered anew: once in as many tokens as they have.
    """

    def __init__(self, capacity: int) -> None:
        self.captions: deque[tuple[int, ...]] = deque(maxlen=capacity)
        # Where each caption begins.
        self._begins: deque[int] = deque(maxlen=capacity)
        self._end = 0
        self.arrays = _empty(_FEWEST)

    @property
    def oldest(self) -> int:
        """The first place that counts."""
        return self._begins[0] if self._begins else 0

    def add(self, caption: tuple[int, ...]) -> None:
        """Enter a finished caption, and forget the oldest if they become too many."""
        self.captions.append(caption)
        if self._end + len(caption) <= self._places:
            self._enter(caption)
            return
        needed = 2 * sum(map(len, self.captions))
        self.arrays = _empty(max(_FEWEST, 1 << (needed - 1).bit_length()))
        self._begins.clear()
        self._end = 0
        for left in self.captions:
            self._enter(left)

    @property
    def _places(self) -> int:
        return len(self.arrays[-1])

    def _enter(self, caption: tuple[int, ...]) -> None:
        add(self.arrays, behind_start(caption), self._end)
        self._begins.append(self._end)
        self._end += len(caption)


def behind_start(tokens: tuple[int, ...]) -> np.ndarray:
    """(1 + n,) int64: START and the tokens."""
    return np.array((START, *tokens), np.int64)


def _empty(places: int) -> Table:
    slots = _SLOTS * places
    return (
        np.zeros(slots, np.uint64),
        np.zeros(slots, np.int32),
        np.zeros((places, KINDS), np.int32),
        np.zeros(places, np.int32),
    )
