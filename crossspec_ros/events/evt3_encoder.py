"""Prophesee's EVT 3.0, encoded; see evt3.py for the words."""

from __future__ import annotations

import numpy as np

from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.evt3 import (
    ADDR_X,
    ADDR_Y,
    ROLLOVER_FALL,
    ROLLOVER_US,
    TIME_HIGH,
    TIME_LOW,
    VECT_8,
    VECT_12,
    VECT_BASE_X,
)

_MAX_COORDINATE = (1 << 11) - 1


def encode_time(t_us: int) -> bytes:
    """The words that carry the time alone, for a packet without events."""
    return np.array([TIME_HIGH << 12 | t_us >> 12 & 0xFFF, TIME_LOW << 12 | t_us & 0xFFF], "<u2").tobytes()


def encode_evt3(batch: EventBatch) -> bytes:
    """Encode a batch, its order kept; the packet starts with its time, so that it can be decoded alone.

    EVT3 carries 24 bits of time: decoding the packet alone gives `t` less a multiple of 2**24 us.
    Neighbouring events of one row, time and polarity share vector words where that takes fewer words. Raises
    ValueError for coordinates above 2047 and for steps in time that the format cannot express.
    """
    count = len(batch)
    if not count:
        return b""
    if max(int(batch.x.max()), int(batch.y.max())) > _MAX_COORDINATE:
        raise ValueError(f"EVT3 coordinates end at {_MAX_COORDINATE}")
    t, x, y, p = batch.t, batch.x.astype(np.int32), batch.y, batch.p
    high = t >> 12
    _check_time_steps(high)

    new_high = _differs(high)
    new_low = _differs(t)
    new_y = _differs(y)
    # A segment is a run of events that may share vector words: each to the right of the last, with gaps that
    # leave no mask empty.
    step = np.diff(x)
    new_segment = new_low | new_y | _differs(p)
    new_segment[1:] |= (step <= 0) | (step > 12)

    segment_starts = np.flatnonzero(new_segment)
    lengths = np.diff(segment_starts, append=count)
    column = x - np.repeat(x[segment_starts], lengths)
    mask_index, bit = np.divmod(column, 12)
    last = segment_starts + lengths - 1
    is_vector = np.repeat(mask_index[last] + 2 < lengths, lengths)
    new_mask = is_vector & (_differs(mask_index) | new_segment)
    new_base = is_vector & new_segment

    polarity = p.astype(np.uint16) << 11
    kinds = (
        (new_high, (TIME_HIGH << 12 | high & 0xFFF).astype("<u2")),
        (new_low, (TIME_LOW << 12 | t & 0xFFF).astype("<u2")),
        (new_y, ADDR_Y << 12 | y),
        (new_base, VECT_BASE_X << 12 | polarity | batch.x),
        (new_mask, _mask_words(new_mask, is_vector, new_base, bit)),
        (~is_vector, ADDR_X << 12 | polarity | batch.x),
    )
    # Every event writes the words it starts, in the order above; their places follow from the counts.
    place = np.zeros(count, np.int64)
    np.cumsum(sum(flag[:-1].astype(np.int8) for flag, _ in kinds), out=place[1:])
    total = int(place[-1]) + sum(int(flag[-1]) for flag, _ in kinds)
    words = np.empty(total, "<u2")
    for flag, word in kinds:
        where = np.flatnonzero(flag)
        words[place[where]] = word[where]
        place[where] += 1
    return words.tobytes()


def _differs(values: np.ndarray) -> np.ndarray:
    """(N,) bool: whether each value differs from the one before it; true for the first."""
    changed = np.empty(len(values), np.bool_)
    changed[0] = True
    np.not_equal(values[1:], values[:-1], out=changed[1:])
    return changed


def _mask_words(
    new_mask: np.ndarray, is_vector: np.ndarray, new_base: np.ndarray, bit: np.ndarray
) -> np.ndarray:
    """(N,) uint16 with each mask word at the event that starts it; VECT_8 for a segment's end if it fits."""
    words = np.zeros(len(bit), np.uint16)
    starts = np.flatnonzero(new_mask)
    if not len(starts):
        return words
    bits = np.where(is_vector, 1 << bit, 0)
    masks = np.bitwise_or.reduceat(bits, starts)
    ends_segment = np.append(new_base[starts[1:]], True)
    is_short = ends_segment & (masks < 1 << 8)
    words[starts] = np.where(is_short, VECT_8 << 12, VECT_12 << 12) | masks
    return words


def _check_time_steps(high: np.ndarray) -> None:
    steps = np.diff(high)
    seen = np.diff(high & 0xFFF)
    seen = np.where(seen < -ROLLOVER_FALL, seen + (ROLLOVER_US >> 12), seen)
    if not np.array_equal(steps, seen):
        raise ValueError("EVT3 cannot express times that go back by more than 40 ms or forward by 16 s")
