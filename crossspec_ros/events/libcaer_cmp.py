"""The `libcaer_cmp` encoding: 16-bit little-endian words, the type in the top four bits, columns first."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from crossspec_ros.compiled import WORDS, compiled
from crossspec_ros.events.batch import NO_TRIGGERS, EventBatch, check_count
from crossspec_ros.events.packed import POLARITY_BIT, ROW_SHIFT, TIME_SHIFT, X_MASK, unpack
from crossspec_ros.events.splice import Payload, Splice

TIME_HIGH, TIME_LOW, ADDR_X, ADDR_Y, VECT_BASE_Y, VECT_8 = range(6)

# What a stream's state holds beside the time, which starts anew in every packet.
_COLUMN, _BASE, _POLARITY, _STATE = range(4)
_MOST_WORDS = 1 << 15
"""Decoded at once, so that the room for what they may hold stays small."""


@compiled(f"UniTuple(int64, 5)({WORDS}, int64[::1], int64, int64, int64, int64, int64[::1])")
def _decode(
    words: np.ndarray, state: np.ndarray, high: int, low: int, width: int, height: int, events: np.ndarray
) -> tuple[int, int, int, int, int]:
    """Fill `events` (packed); returns how many, the time's high and low bits, outside and unknown ones."""
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
            # Every bit is written and only those that are set are kept: nothing to guess wrong.
            for bit in range(8):
                events[count] = place | polarity | (base + bit & 0x7FF) << ROW_SHIFT
                count += np.uint64(mask >> bit & 1)
            base = base + 8 & 0xFFFF
        else:
            unknown += 1
    state[_COLUMN], state[_BASE], state[_POLARITY] = column, base, polarity
    return int(count), high, low, outside, unknown


class LibcaerCmpDecoder:
    """Decodes `libcaer_cmp` packets as event_camera_codecs' libcaer_cmp_decoder.h does.

    t is time_base, which each packet carries anew, plus the event's time, in whole us of the host's clock.
    """

    triggers = NO_TRIGGERS

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.damage: Counter[str] = Counter()
        self._splice = Splice(np.dtype("<u2"), _count_unknown, self.damage)
        self._state = np.zeros(_STATE, np.int64)
        # A vector word is written whole, whatever it holds.
        self._events = np.empty(8 * _MOST_WORDS + 8, np.int64)

    def decode(self, payload: Payload, time_base: int = 0) -> EventBatch:
        words = self._splice.words(payload)
        high = low = total = 0
        batches = [EventBatch.empty(self.width, self.height)]
        for i in range(0, len(words), _MOST_WORDS):
            count, high, low, outside, unknown = _decode(
                words[i : i + _MOST_WORDS],
                self._state,
                high,
                low,
                self.width,
                min(self.height, 2048),
                self._events,
            )
            if outside or unknown:
                self.damage.update(events_outside_sensor=outside, unknown_words=unknown)
            total += count
            check_count(total)
            batches.append(unpack(self._events, count, time_base // 1000, self.width, self.height))
        return batches[1] if len(batches) == 2 else EventBatch.concat(batches)


def _count_unknown(words: np.ndarray) -> int:
    return int(np.count_nonzero(words >> 12 > VECT_8))
