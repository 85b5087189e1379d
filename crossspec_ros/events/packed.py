"""Streams of 16-bit words: what their decoders have in common, and the events that their loops make.

One store an event instead of four keeps the loops that follow a stream word by word short; unpacking is
vectorised. A packed event has, from the top, 40 bits of signed us since the block's start, 12 of y, 1 of
polarity and 11 of x.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from crossspec_ros.compiled import compiled
from crossspec_ros.events.batch import EventBatch, check_count
from crossspec_ros.events.splice import Splice

TIME_SHIFT = 24
ROW_SHIFT = 12
POLARITY_BIT = 1 << 11
X_MASK = (1 << 11) - 1
_BLOCK_WORDS = 1 << 15
"""Decoded at once, so that the room for what they may hold stays small."""


@compiled("void(int64[::1], int64, int64[::1], uint16[::1], uint16[::1], uint8[::1])")
def _unpack(
    packed: np.ndarray, start_us: int, t: np.ndarray, x: np.ndarray, y: np.ndarray, p: np.ndarray
) -> None:
    for i in range(t.size):
        event = packed[i]
        t[i] = start_us + (event >> TIME_SHIFT)
        y[i] = event >> ROW_SHIFT & 0xFFF
        x[i] = event & X_MASK
        p[i] = event >> 11 & 1


class WordDecoder:
    """Cuts a stream into blocks of whole words, for decoders that fill `_packed` from a block.

    A vector word writes `vector` events, whatever it holds; `nonsense` counts the words that none has. The
    `state` holds so many values between blocks.
    """

    def __init__(
        self, width: int, height: int, vector: int, nonsense: Callable[[np.ndarray], int], state: int
    ) -> None:
        self.width, self.height = width, height
        self.damage: Counter[str] = Counter()
        self._splice = Splice(np.dtype("<u2"), nonsense, self.damage)
        self._packed = np.empty(vector * (_BLOCK_WORDS + 1), np.int64)
        self._state = np.zeros(state, np.int64)

    def _decode_words(self, words: np.ndarray) -> EventBatch:
        if len(words) <= _BLOCK_WORDS:
            return self._decode_block(words)
        blocks, count = list[EventBatch](), 0
        for i in range(0, len(words), _BLOCK_WORDS):
            blocks.append(self._decode_block(words[i : i + _BLOCK_WORDS]))
            count += len(blocks[-1])
            check_count(count)
        return EventBatch.concat(blocks)

    def _decode_block(self, words: np.ndarray) -> EventBatch:
        raise NotImplementedError

    def _unpack(self, count: int, start_us: int) -> EventBatch:
        """The first `count` packed events, whose times count from `start_us`."""
        t, x = np.empty(count, np.int64), np.empty(count, np.uint16)
        y, p = np.empty(count, np.uint16), np.empty(count, np.uint8)
        _unpack(self._packed, start_us, t, x, y, p)
        return EventBatch(t, x, y, p, self.width, self.height)

    def _count(self, **damage: int) -> None:
        for kind, number in damage.items():
            if number:
                self.damage[kind] += number
