"""Segments of events in one line, in the vector words that EVT 3.0 and `libcaer_cmp` have."""

from __future__ import annotations

import numpy as np

from crossspec_ros.compiled import FIELDS, compiled


@compiled(f"UniTuple(int64, 2)({FIELDS}, uint16[::1], int64, int64, int64, int64, int64, int64)")
def put_segment(
    t: np.ndarray,
    line: np.ndarray,
    along: np.ndarray,
    p: np.ndarray,
    words: np.ndarray,
    count: int,
    start: int,
    base: int,
    vector: int,
    bits: int,
    single: int,
) -> tuple[int, int]:
    """Put the events from `start` on that may share vector words; return the number of words, and the end.

    They have one time, line and polarity, and each lies ahead of the last, with gaps that leave no mask of so
    many `bits` empty. They take the words `base` and `vector`, or a word `single` each where these are fewer.
    """
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
            place = np.int64(along[i]) - first
            words[count + 1 + place // bits] |= 1 << place % bits
        count += 1 + masks
    else:
        for i in range(start, end):
            words[count] = single << 12 | polarity | along[i]
            count += 1
    return count, end
