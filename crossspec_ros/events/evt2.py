"""Prophesee's EVT 2.0 and EVT 2.1, decoded: a head of 32 bits, in EVT 2.1 with a mask of 32 pixels.

A head has its type in bits 28-31. Events (type 0 off, 1 on) have the lower 6 bits of their time in bits
22-27, x in bits 11-21 and y in bits 0-10. TIME_HIGH (8) holds the upper 28 bits of the times to come.
Specification: https://docs.prophesee.ai/stable/data/encoding_formats/
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from crossspec_ros.events.batch import EventBatch, drop_outside
from crossspec_ros.events.packed import Payload

OFF, ON, TIME_HIGH, EXT_TRIGGER = 0x0, 0x1, 0x8, 0xA
# Of the sensor about itself.
_OTHERS, _CONTINUED = 0xE, 0xF
_LOW_BITS, _HIGH_BITS = 6, 28
_HIGH_MASK = (1 << _HIGH_BITS) - 1


class Evt2Decoder:
    """Decodes complete EVT 2.0 words; `t` is the sensor's time in us, unwrapped.

    Words before the first TIME_HIGH have no time; they and words of unknown types are skipped and counted in
    `damage`, as events outside the sensor are.
    """

    word_bytes = 4

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.damage: Counter[str] = Counter()
        self._high = -1
        self._zeros = 0

    def decode(self, payload: Payload, time_base: int = 0) -> EventBatch:
        return self._decode_heads(self._heads(payload), None)

    def _heads(self, payload: Payload) -> np.ndarray:
        """Return the heads without padding: a zero is an event at (0, 0), but two in a row are padding."""
        heads = np.frombuffer(payload, "<u4")
        if self._zeros:
            heads = np.concatenate([np.zeros(self._zeros, "<u4"), heads])
        is_zero = heads == 0
        is_pair = is_zero[1:] & is_zero[:-1]
        is_dropped = np.append(is_pair, False) | np.append(False, is_pair)
        # Whether a zero at the end is padding depends on the next payload.
        self._zeros = int(np.count_nonzero(is_zero[-2:])) if is_zero[-1:].any() else 0
        is_dropped[-1:] |= is_zero[-1:]
        return heads[~is_dropped] if is_dropped.any() else heads

    def _times(self, highs: np.ndarray) -> np.ndarray:
        """Return (1 + N,) int64: the upper time bits before (-1: none) and after each TIME_HIGH of (N,)."""
        high = (highs & _HIGH_MASK).astype(np.int64)
        last = self._high
        if len(high):
            start = int(high[0]) if last < 0 else last
            steps = np.diff(high, prepend=start & _HIGH_MASK)
            # Time goes back a little now and then, and wraps: a step is the shorter one of both directions.
            half = 1 << _HIGH_BITS - 1
            high = start + np.cumsum((steps + half & _HIGH_MASK) - half)
            self._high = int(high[-1])
        return np.concatenate([[last], high])

    def _decode_heads(self, heads: np.ndarray, masks: np.ndarray | None) -> EventBatch:
        kinds = heads >> 28
        is_high = kinds == TIME_HIGH
        high = self._times(heads[is_high])[np.cumsum(is_high)]
        t = high << _LOW_BITS | (heads >> 22 & 0x3F)
        dated = high >= 0
        self._count("words_before_time", int(np.count_nonzero(~dated)))
        is_valid = np.isin(kinds, (OFF, ON, TIME_HIGH, EXT_TRIGGER, _OTHERS, _CONTINUED))
        self._count("unknown_words", int(np.count_nonzero(dated & ~is_valid)))
        at = np.flatnonzero(dated & (kinds <= ON))
        x, y, p = heads[at] >> 11 & 0x7FF, heads[at] & 0x7FF, kinds[at]
        t = t[at]
        if masks is not None:
            bits = np.unpackbits(masks[at].reshape(-1, 1).view(np.uint8), axis=1, bitorder="little")
            of, offset = np.nonzero(bits)
            t, x, y, p = t[of], x[of] + offset.astype(np.uint32), y[of], p[of]
        batch = EventBatch(
            t, x.astype(np.uint16), y.astype(np.uint16), p.astype(np.uint8), self.width, self.height
        )
        return drop_outside(batch, self.damage)

    def _count(self, kind: str, number: int) -> None:
        if number:
            self.damage[kind] += number


class Evt21Decoder(Evt2Decoder):
    """Decodes complete EVT 2.1 words of 64 bits.

    The head is the upper half of a word. If `is_legacy`, it still comes first, as from sensors that send
    each half of a word by itself.
    """

    word_bytes = 8

    def __init__(self, width: int, height: int, is_legacy: bool = False) -> None:
        super().__init__(width, height)
        self._head = 0 if is_legacy else 1

    def decode(self, payload: Payload, time_base: int = 0) -> EventBatch:
        masks = np.ascontiguousarray(np.frombuffer(payload, "<u4")[1 - self._head :: 2])
        return self._decode_heads(self._heads(payload), masks)

    def _heads(self, payload: Payload) -> np.ndarray:
        return np.frombuffer(payload, "<u4")[self._head :: 2]
