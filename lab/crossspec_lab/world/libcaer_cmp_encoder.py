"""The `libcaer_cmp` encoding, encoded; see libcaer_cmp.py for the words."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossspec_lab.world.vector_words import put_segment
from crossspec_ros.compiled import FIELDS, compiled
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.libcaer_cmp import ADDR_X, ADDR_Y, TIME_HIGH, TIME_LOW, VECT_8, VECT_BASE_Y
from crossspec_ros.events.packed import X_MASK


def encode_libcaer_cmp(batch: EventBatch, time_base: int) -> bytes:
    """Encode a batch for a packet with this `time_base` in ns, its order kept; `batch.t` is absolute, in us.

    Neighbouring events of one column, time and polarity share vector words where that takes fewer words.
    Raises ValueError for coordinates above 2047 and for times not within 16.7 s from the time base.
    """
    if not len(batch):
        return b""
    if max(int(batch.x.max()), int(batch.y.max())) > X_MASK:
        raise ValueError(f"libcaer_cmp coordinates end at {X_MASK}")
    t, x, y, p = batch.contiguous()
    t = t - time_base // 1000
    if int(t.min()) < 0 or int(t.max()) >= 1 << 24:
        raise ValueError("libcaer_cmp can express times up to 16.7 s after the packet's time base only")
    words = np.empty(4 * len(batch), np.uint16)
    return words[: _encode(t, x, y, p, words)].tobytes()


@compiled(f"int64({FIELDS}, uint16[::1])")
def _encode(t: np.ndarray, x: np.ndarray, y: np.ndarray, p: np.ndarray, words: np.ndarray) -> int:
    """Fill `words`, of which an event takes four at most; returns how many."""
    count: Any = 0
    start = high = low = 0
    while start < t.size:
        if t[start] >> 12 != high:
            high = t[start] >> 12
            words[count] = TIME_HIGH << 12 | high
            count += 1
        if t[start] & 0xFFF != low:
            low = t[start] & 0xFFF
            words[count] = TIME_LOW << 12 | low
            count += 1
        if start == 0 or x[start] != x[start - 1]:
            words[count] = ADDR_X << 12 | x[start]
            count += 1
        count, start = put_segment(t, x, y, p, words, (count, start), (VECT_BASE_Y, VECT_8, ADDR_Y, 8))
    return count
