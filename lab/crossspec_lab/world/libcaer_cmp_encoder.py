"""The `libcaer_cmp` encoding, encoded; see libcaer_cmp.py for the words."""

from __future__ import annotations

import numpy as np

from crossspec_lab.evt3_encoder import encode_words
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.libcaer_cmp import ADDR_X, ADDR_Y, TIME_HIGH, TIME_LOW, VECT_8, VECT_BASE_Y
from crossspec_ros.events.packed import X_MASK

_KINDS = TIME_HIGH, TIME_LOW, ADDR_X, VECT_BASE_Y, VECT_8, ADDR_Y


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
    return words[: encode_words(t, x, y, p, words, 0, _KINDS, 8)].tobytes()
