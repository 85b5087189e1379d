"""Segments of events in one line, in the vector words of EVT 3.0 and `libcaer_cmp`."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossspec_ros.compiled import FIELDS, compiled


@compiled(f"UniTuple(int64, 2)({FIELDS}, uint16[::1], UniTuple(int64, 2), UniTuple(int64, 4))")
def put_segment(t: Any, line: Any, along: Any, p: Any, words: Any, place: Any, kinds: Any) -> tuple[int, int]:
    """Put the events that may share vector words; return the positions behind them.

    `place` has the positions of the first, in words and in events. The events have one time, line and
    polarity, and each lies ahead of the last, with gaps that leave no mask empty. `kinds` are the words of a
    base, a mask and a single event, and the bits of a mask. The fewer words win, single or vector.
    """
    (count, start), (base, vector, single, bits) = place, kinds
    end = start + 1
    while (
        end < t.size
        and t[end] == t[start]
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
    return count, end
