"""Prophesee's EVT 3.0, decoded: 16-bit little-endian words, the type in the top four bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import evt3
import numpy as np

from crossspec_ros.events.batch import EventBatch, drop_outside

ADDR_Y, ADDR_X, VECT_BASE_X, VECT_12, VECT_8, TIME_LOW, TIME_HIGH = 0x0, 0x2, 0x3, 0x4, 0x5, 0x6, 0x8
_UNKNOWN = (0x1, 0x9, 0xB, 0xC, 0xD)
# What a sensor tells about itself, in words that no decoder of events needs.
_MONITORING = (0x7, 0xE, 0xF)

ROLLOVER_US = 1 << 24
# TIME_HIGH goes back a little now and then; only a fall by more than this means that the 24 bits wrapped.
ROLLOVER_FALL = 10
# From here on the library sees the wrap itself.
_LIBRARY_FALL = 4085


class Evt3Decoder:
    """Decodes `evt3` packets with the `evt3` library to what event_camera_codecs' evt3_decoder.h yields.

    `t` is the sensor's time in us, unwrapped; `time_base` means nothing in this encoding. Three things are
    added to the library: time is valid only after a TIME_HIGH and then a TIME_LOW, a wrap is seen also when
    the stream paused across it, and events outside the sensor are dropped. One of its ways is kept: TIME_HIGH
    sets the low bits to 0, as in Prophesee's OpenEB; sensors send a TIME_LOW before the next event anyway.
    """

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.damage: Counter[str] = Counter()
        self._library = evt3.Decoder()
        self._half_word = b""
        self._has_time = False
        self._early_high: np.ndarray = np.empty(0, "<u2")
        self._last_high: int | None = None
        self._missed_us = 0

    def decode(self, payload: bytes | memoryview, time_base: int = 0) -> EventBatch:
        words = np.frombuffer(self._join_half_word(bytes(payload)), "<u2")
        kinds = (words >> 12).astype(np.uint8)
        self._count("unknown_words", _count_kinds(kinds, _UNKNOWN))
        self._count("monitoring_words", _count_kinds(kinds, _MONITORING))
        if not self._has_time:
            words = self._from_first_time(words)
            kinds = (words >> 12).astype(np.uint8)
        pieces = [self._feed(piece) for piece in self._split_at_missed_wraps(words, kinds)]
        return drop_outside(EventBatch.concat(pieces), self.damage)

    def _count(self, kind: str, number: int) -> None:
        if number:
            self.damage[kind] += number

    def _join_half_word(self, data: bytes) -> bytes:
        """Whole words, with the half one that the last packet ended in, unless that packet was truncated.

        A stream that was cut in mid-word goes on with the other half, a driver's next packet starts with a
        whole word. The wrong reading is full of unknown words; when both are as good, the length decides.
        """
        half, joined = self._half_word, self._half_word + data
        if half and data:
            surplus = _count_unknown(joined) - _count_unknown(data)
            if surplus > 0 or (surplus == 0 and len(data) % 2 == 0):
                self._count("torn_words", 1)
                joined = data
        end = len(joined) // 2 * 2
        self._half_word = joined[end:]
        return joined[:end]

    def _from_first_time(self, words: np.ndarray) -> np.ndarray:
        """The words from the first valid time on; of those before it only the latest TIME_HIGH is kept."""
        words = np.concatenate([self._early_high, words])
        highs = np.flatnonzero(words >> 12 == TIME_HIGH)
        lows = np.flatnonzero(words >> 12 == TIME_LOW)
        lows = lows[lows > highs[0]] if len(highs) else lows[:0]
        start = int(lows[0]) if len(lows) else len(words)
        highs = highs[highs < start]
        self._early_high = words[highs[-1:]]
        self._has_time = len(lows) > 0
        self._count("words_before_time", start - len(highs[-1:]))
        return np.concatenate([self._early_high, words[start:]]) if self._has_time else words[:0]

    def _split_at_missed_wraps(self, words: np.ndarray, kinds: np.ndarray) -> Iterator[np.ndarray]:
        """The words in pieces, each but the first starting where time wraps unseen by the library."""
        where = np.flatnonzero(kinds == TIME_HIGH)
        start = 0
        if len(where):
            highs = (words[where] & 0xFFF).astype(np.int32)
            before = np.concatenate([highs[:1] if self._last_high is None else [self._last_high], highs[:-1]])
            self._last_high = int(highs[-1])
            fall = before - highs
            for wrap in where[(fall > ROLLOVER_FALL) & (fall < _LIBRARY_FALL)].tolist():
                yield words[start:wrap]
                start = wrap
                self._missed_us += ROLLOVER_US
        yield words[start:]

    def _feed(self, words: np.ndarray) -> EventBatch:
        events = self._library.feed(words.tobytes())
        t = events.t.view(np.int64)
        if self._missed_us:
            t = t + self._missed_us
        return EventBatch(t, events.x, events.y, events.p, self.width, self.height)


def _count_kinds(kinds: np.ndarray, which: tuple[int, ...]) -> int:
    return sum(int(np.count_nonzero(kinds == kind)) for kind in which)


def _count_unknown(data: bytes) -> int:
    return _count_kinds(np.frombuffer(data, "<u2", len(data) // 2) >> 12, _UNKNOWN)
