"""Prophesee's EVT 3.0, decoded: 16-bit little-endian words, the type in the top four bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossspec_ros.compiled import WORDS, compiled
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.packed import POLARITY_BIT, ROW_SHIFT, TIME_SHIFT, X_MASK, Payload, WordDecoder

ADDR_Y, ADDR_X, VECT_BASE_X, VECT_12, VECT_8 = 0x0, 0x2, 0x3, 0x4, 0x5
TIME_LOW, TIME_HIGH, EXT_TRIGGER = 0x6, 0x8, 0xA
PADDING = 0x9999
"""LUCID's cameras fill up their packets with it."""

# TIME_HIGH goes back a little now and then; only a fall by more than this means that the 24 bits wrapped.
ROLLOVER_FALL = 10

# What a stream's state holds: times in us, with the rollovers; row, base and polarity of the words to come.
_NOW, _HIGH, _ROW, _BASE, _POLARITY, _HAS_HIGH, _HAS_TIME, _STATE = range(8)


@compiled("int64(int64, int64)")
def _next_high(high: int, word: int) -> int:
    """Return the time that a TIME_HIGH word sets: its 12 bits over the rollovers so far."""
    value = word & 0xFFF
    wrapped = value < (high >> 12 & 0xFFF) - ROLLOVER_FALL
    return ((high >> 24) + wrapped) << 24 | value << 12


@compiled(f"UniTuple(int64, 2)({WORDS}, int64[::1])")
def _find_time(words: np.ndarray, state: np.ndarray) -> tuple[int, int]:
    """Return the index behind the first valid time, and the number of unusable words before it."""
    useless = 0
    for i in range(words.size):
        word: Any = np.int64(words[i])
        kind = word >> 12
        if kind == TIME_HIGH:
            state[_HIGH] = _next_high(state[_HIGH], word)
            state[_HAS_HIGH] = 1
        elif kind == TIME_LOW and state[_HAS_HIGH]:
            state[_NOW] = state[_HIGH] | word & 0xFFF
            state[_HAS_TIME] = 1
            return i + 1, useless
        elif word != PADDING:
            useless += 1
    return words.size, useless


@compiled(f"UniTuple(int64, 4)({WORDS}, int64[::1], int64, int64, int64[::1])")
def _decode(
    words: np.ndarray, state: np.ndarray, width: int, height: int, events: np.ndarray
) -> tuple[int, int, int, int]:
    """Fill `events`, packed; return their number, and those of events outside, unknown words and others."""
    now, high, row = state[_NOW], state[_HIGH], state[_ROW]
    base, polarity = state[_BASE], state[_POLARITY]
    start = now
    # Unsigned, so that no index is checked for being negative.
    i, size, one = np.uint64(0), np.uint64(words.size), np.uint64(1)
    count: Any = np.uint64(0)
    outside = unknown = monitoring = 0
    while i < size:
        # Most events come as time, row, pixel. Tests in this order handle most words by the first test.
        word: Any = np.int64(words[i])
        if word >> 12 == TIME_HIGH:
            high = now = _next_high(high, word)
            i += one
            if i == size:
                break
            word = np.int64(words[i])
        if word >> 12 == TIME_LOW:
            now = high | word & 0xFFF
            i += one
            if i == size:
                break
            word = np.int64(words[i])
        if word >> 12 == ADDR_Y:
            row = word & X_MASK
            i += one
            if i == size:
                break
            word = np.int64(words[i])
        kind = word >> 12
        place = (now - start) << TIME_SHIFT | row << ROW_SHIFT
        if kind == ADDR_X:
            inside = ((word & X_MASK) < width) & (row < height)
            events[count] = place | word & 0xFFF
            count += np.uint64(inside)
            outside += 1 - inside
        elif kind == VECT_BASE_X:
            base = word & X_MASK
            polarity = word & POLARITY_BIT
        elif kind in (VECT_12, VECT_8):
            mask = word & (0xFFF if kind == VECT_12 else 0xFF)
            room = min(max(width - base, 0), 12) if row < height else 0
            for bit in range(room, 12):
                outside += mask >> bit & 1
            mask &= (1 << room) - 1
            # Every bit is written, but only set bits are kept: this avoids branches.
            first = place | polarity | base & X_MASK
            for bit in range(12):
                events[count] = first + bit
                count += np.uint64(mask >> bit & 1)
            base = (base + (12 if kind == VECT_12 else 8)) & 0xFFFF
        elif kind in (TIME_HIGH, TIME_LOW, ADDR_Y):
            continue
        elif kind == 0x7 or kind == EXT_TRIGGER or kind >= 0xE or word == PADDING:
            # State of the sensor, edges on its trigger inputs, or padding.
            monitoring += 1
        else:
            unknown += 1
        i += one
    state[_NOW], state[_HIGH], state[_ROW] = now, high, row
    state[_BASE], state[_POLARITY] = base, polarity
    return int(count), outside, unknown, monitoring


class Evt3Decoder(WordDecoder):
    """Decodes `evt3` packets as event_camera_codecs' evt3_decoder.h does; words it cannot read are skipped.

    `t` is the sensor's time in us, unwrapped; `time_base` means nothing in this encoding. Unlike upstream,
    TIME_HIGH sets the low bits to 0, as in Prophesee's OpenEB, so that time does not jump ahead for a moment;
    sensors send a TIME_LOW before the next event anyway.
    """

    word_bytes = 2

    def __init__(self, width: int, height: int) -> None:
        super().__init__(width, height, 12, _STATE)

    def decode(self, payload: Payload, time_base: int = 0) -> EventBatch:
        words = self._words(payload)
        if not self._state[_HAS_TIME]:
            start, useless = _find_time(words, self._state)
            self._count(words_before_time=useless)
            words = words[start:]
        return self._decode_words(words)

    def _decode_block(self, words: np.ndarray) -> EventBatch:
        start_us = int(self._state[_NOW])
        count, outside, unknown, monitoring = _decode(
            words, self._state, min(self.width, X_MASK + 1), self.height, self._packed
        )
        self._count(events_outside_sensor=outside, unknown_words=unknown, monitoring_words=monitoring)
        return self._unpack(count, start_us)
