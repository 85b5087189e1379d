"""Events as one 64-bit word each, between a decoding loop and an `EventBatch`.

One store an event instead of four keeps the loops that follow a stream word by word short; unpacking is
vectorised.
Bits from the top: 40 of signed us since the block's start, 12 of y, 1 of polarity, 11 of x.
"""

from __future__ import annotations

import numpy as np

from crossspec_ros.compiled import compiled
from crossspec_ros.events.batch import EventBatch

TIME_SHIFT, ROW_SHIFT, POLARITY_BIT, X_MASK = 24, 12, 1 << 11, (1 << 11) - 1


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


def unpack(packed: np.ndarray, count: int, start_us: int, width: int, height: int) -> EventBatch:
    """The first `count` of `packed` (N,) int64, whose times count from `start_us`."""
    t, x = np.empty(count, np.int64), np.empty(count, np.uint16)
    y, p = np.empty(count, np.uint16), np.empty(count, np.uint8)
    _unpack(packed, start_us, t, x, y, p)
    return EventBatch(t, x, y, p, width, height)
