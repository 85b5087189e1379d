"""Prophesee's EVT 3.0, encoded; see evt3.py for the words."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossspec_lab.world.vector_words import put_segment
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
    words = np.empty(4 * len(batch), np.uint16)
    count = _encode(*batch.contiguous(), words)
    if count < 0:
        raise ValueError("EVT3 cannot express times that go back by more than 40 ms or forward by 16 s")
    return words[:count].tobytes()


@compiled("int64(int64, int64)")
def _seen_step(before: int, high: int) -> int:
    """Steps of the upper bits of time, as a decoder sees them."""
    step = (high & 0xFFF) - (before & 0xFFF)
    return step + 4096 if step < -ROLLOVER_FALL else step


@compiled(f"int64({FIELDS}, uint16[::1])")
def _encode(t: np.ndarray, x: np.ndarray, y: np.ndarray, p: np.ndarray, words: np.ndarray) -> int:
    """Fill `words`, of which an event takes four at most; returns how many, -1 for a time out of reach."""
    count: Any = 0
    start = 0
    while start < t.size:
        high = t[start] >> 12
        if start == 0 or high != t[start - 1] >> 12:
            if start and high - (t[start - 1] >> 12) != _seen_step(t[start - 1] >> 12, high):
                return -1
            words[count] = TIME_HIGH << 12 | high & 0xFFF
            count += 1
        if start == 0 or t[start] != t[start - 1]:
            words[count] = TIME_LOW << 12 | t[start] & 0xFFF
            count += 1
        if start == 0 or y[start] != y[start - 1]:
            words[count] = ADDR_Y << 12 | y[start]
            count += 1
        count, start = put_segment(t, y, x, p, words, (count, start), (VECT_BASE_X, VECT_12, ADDR_X, 12))
        if words[count - 1] >> 12 == VECT_12 and words[count - 1] & 0xFFF < 1 << 8:
            words[count - 1] = VECT_8 << 12 | words[count - 1] & 0xFF
    return count
