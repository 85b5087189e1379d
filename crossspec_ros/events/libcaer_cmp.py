"""The `libcaer_cmp` encoding: 16-bit little-endian words, the type in the top four bits, columns first."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossspec_ros.compiled import WORDS, compiled
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.packed import POLARITY_BIT, ROW_SHIFT, TIME_SHIFT, X_MASK, Payload, WordDecoder

TIME_HIGH, TIME_LOW, ADDR_X, ADDR_Y, VECT_BASE_Y, VECT_8 = range(6)

# What a stream's state holds; the time starts anew in every packet.
_HIGH, _LOW, _COLUMN, _BASE, _POLARITY, _STATE = range(6)


@compiled(f"UniTuple(int64, 3)({WORDS}, int64[::1], int64, int64, int64[::1])")
def _decode(
    words: np.ndarray, state: np.ndarray, width: int, height: int, events: np.ndarray
) -> tuple[int, int, int]:
    """Fill `events`, packed; returns how many, and counts of those outside and of unknown words."""
    high, low = state[_HIGH], state[_LOW]
    column, base, polarity = state[_COLUMN], state[_BASE], state[_POLARITY]
    # Unsigned, so that no index is checked for being negative.
    count: Any = np.uint64(0)
    outside = unknown = 0
    place = (high | low) << TIME_SHIFT | column
    is_column = column < width
    for i in range(words.size):
        word: Any = np.int64(words[i])
        kind = word >> 12
        if kind == ADDR_Y:
            row = word & 0x7FF
            inside = (row < height) & is_column
            events[count] = place | row << ROW_SHIFT | word & POLARITY_BIT
            count += np.uint64(inside)
            outside += 1 - inside
        elif kind == ADDR_X:
            column = word & X_MASK
            is_column = column < width
            place = (high | low) << TIME_SHIFT | column
        elif kind == TIME_LOW:
            low = word & 0xFFF
            place = (high | low) << TIME_SHIFT | column
        elif kind == TIME_HIGH:
            high = (word & 0xFFF) << 12
            place = (high | low) << TIME_SHIFT | column
        elif kind == VECT_BASE_Y:
            base = word & 0x7FF
            polarity = word & POLARITY_BIT
        elif kind == VECT_8:
            mask = word & 0xFF
            room = min(max(height - base, 0), 8) if is_column else 0
            for bit in range(room, 8):
                outside += mask >> bit & 1
            mask &= (1 << room) - 1
            # Every bit is written, but only set bits are kept: this avoids branches.
            for bit in range(8):
                events[count] = place | polarity | (base + bit & 0x7FF) << ROW_SHIFT
                count += np.uint64(mask >> bit & 1)
            base = base + 8 & 0xFFFF
        else:
            unknown += 1
    state[_HIGH], state[_LOW] = high, low
    state[_COLUMN], state[_BASE], state[_POLARITY] = column, base, polarity
    return int(count), outside, unknown


class LibcaerCmpDecoder(WordDecoder):
    """Decodes `libcaer_cmp` packets as event_camera_codecs' libcaer_cmp_decoder.h does.

    t is time_base, which each packet carries anew, plus the event's time, in integer us of the host's clock.
    """

    def __init__(self, width: int, height: int) -> None:
        super().__init__(width, height, 8, _STATE)
        self._base_us = 0

    def decode(self, payload: Payload, time_base: int = 0) -> EventBatch:
        self._base_us = time_base // 1000
        self._state[:_COLUMN] = 0
        return self._decode_words(self._words(payload))

    def _decode_block(self, words: np.ndarray) -> EventBatch:
        count, outside, unknown = _decode(
            words, self._state, self.width, min(self.height, 1 << 11), self._packed
        )
        self._count(events_outside_sensor=outside, unknown_words=unknown)
        return self._unpack(count, self._base_us)
