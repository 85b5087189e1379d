"""Streams of 16-bit words: what their decoders have in common, and the events that their loops make.

One store an event instead of four keeps the loops that follow a stream word by word short; unpacking is
vectorised. A packed event has, from the top, 40 bits of signed us since the block's start, 12 of y, 1 of
polarity and 11 of x.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from crossspec_ros.compiled import compiled
from crossspec_ros.events.batch import EventBatch

Payload = bytes | memoryview

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
    """Cuts packets into blocks of words, for decoders that fill `_packed` from a block.

    A vector word writes `vector` events; `state` is the number of values that are kept between blocks.
    """

    def __init__(self, width: int, height: int, vector: int, state: int) -> None:
        self.width, self.height = width, height
        self.damage: Counter[str] = Counter()
        self._packed = np.empty(vector * (_BLOCK_WORDS + 1), np.int64)
        self._state = np.zeros(state, np.int64)

    def _words(self, payload: Payload) -> np.ndarray:
        """Return the complete words of a payload, and count a torn one at its end as damage."""
        self._count(torn_words=len(payload) % 2)
        return np.frombuffer(payload, "<u2", len(payload) // 2)

    def _decode_words(self, words: np.ndarray) -> EventBatch:
        if len(words) <= _BLOCK_WORDS:
            return self._decode_block(words)
        starts = range(0, len(words), _BLOCK_WORDS)
        return EventBatch.concat([self._decode_block(words[i : i + _BLOCK_WORDS]) for i in starts])

    def _decode_block(self, words: np.ndarray) -> EventBatch:
        raise NotImplementedError

    def _unpack(self, count: int, start_us: int) -> EventBatch:
        """Return the first `count` packed events, whose times count from `start_us`."""
        t, x = np.empty(count, np.int64), np.empty(count, np.uint16)
        y, p = np.empty(count, np.uint16), np.empty(count, np.uint8)
        _unpack(self._packed, start_us, t, x, y, p)
        return EventBatch(t, x, y, p, self.width, self.height)

    def _count(self, **damage: int) -> None:
        for kind, number in damage.items():
            if number:
                self.damage[kind] += number
