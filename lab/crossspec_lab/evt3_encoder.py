"""Prophesee's EVT 3.0, encoded; see evt3.py for the words."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossspec_ros.compiled import FIELDS, compiled
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.evt3 import (
    ADDR_X,
    ADDR_Y,
    ROLLOVER_FALL,
    TIME_HIGH,
    TIME_LOW,
    VECT_8,
    VECT_12,
    VECT_BASE_X,
)
from crossspec_ros.events.packed import X_MASK

_KINDS = TIME_HIGH, TIME_LOW, ADDR_Y, VECT_BASE_X, VECT_12, ADDR_X


def encode_evt3(batch: EventBatch) -> bytes:
    """Encode a batch, its order kept; the packet starts with its time, so that it can be decoded alone.

    EVT3 carries 24 bits of time: decoding the packet alone gives `t` less a multiple of 2**24 us.
    Neighbouring events of one row, time and polarity share vector words where that takes fewer words. Raises
    ValueError for coordinates above 2047 and for steps in time that the format cannot express.
    """
    if not len(batch):
        return b""
    if max(int(batch.x.max()), int(batch.y.max())) > X_MASK:
        raise ValueError(f"EVT3 coordinates end at {X_MASK}")
    t, x, y, p = batch.contiguous()
    seen = np.diff(t >> 12 & 0xFFF)
    seen[seen < -ROLLOVER_FALL] += 4096
    if not np.array_equal(seen, np.diff(t >> 12)):
        raise ValueError("EVT3 cannot express times that go back by more than 40 ms or forward by 16 s")
    room = np.empty(4 * len(batch), np.uint16)
    words = room[: encode_words(t, y, x, p, room, -1, _KINDS, 12)]
    # A mask of 12 bits without the last four is one of 8.
    short = (words >> 12 == VECT_12) & (words & 0xF00 == 0)
    short[:-1] &= words[1:] >> 12 != VECT_12
    words[short] = VECT_8 << 12 | words[short] & 0xFF
    return words.tobytes()


@compiled(f"int64({FIELDS}, uint16[::1], int64, UniTuple(int64, 6), int64)")
def encode_words(
    t: Any, line: Any, along: Any, p: Any, words: np.ndarray, time_us: int, kinds: Any, bits: int
) -> int:
    """Fill `words`, of which an event takes at most four, after the time `time_us`; return how many.

    Neighbouring events of one time, line and polarity share vector words if these are fewer, unless a gap
    leaves a mask empty. `kinds` are the words of the time's upper and lower bits, of a line, a
    vector's base and mask, and a single event; masks have `bits`.
    """
    high, low, address, base, vector, single = kinds
    count: Any = 0
    start = 0
    while start < t.size:
        if t[start] >> 12 != time_us >> 12:
            words[count] = high << 12 | t[start] >> 12 & 0xFFF
            count += 1
        if t[start] != time_us:
            words[count] = low << 12 | t[start] & 0xFFF
            count += 1
        if start == 0 or line[start] != line[start - 1]:
            words[count] = address << 12 | line[start]
            count += 1
        time_us, end = t[start], start + 1
        while (
            end < t.size
            and t[end] == time_us
            and line[end] == line[start]
            and p[end] == p[start]
            and 0 < np.int64(along[end]) - along[end - 1] <= bits
        ):
            end += 1
        first, polarity = np.int64(along[start]), np.int64(p[start]) << 11
        masks = (np.int64(along[end - 1]) - first) // bits + 1
        if 1 + masks < end - start:
            words[count] = base << 12 | polarity | first
            words[count + 1 : count + 1 + masks] = vector << 12
            for i in range(start, end):
                ahead = np.int64(along[i]) - first
                words[count + 1 + ahead // bits] |= 1 << ahead % bits
            count += 1 + masks
        else:
            for i in range(start, end):
                words[count] = single << 12 | polarity | along[i]
                count += 1
        start = end
    return count
