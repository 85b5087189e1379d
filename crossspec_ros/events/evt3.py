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
        self._last_high: np.ndarray = np.empty(0, "<i2")
        self._missed_us = 0

    def decode(self, payload: bytes | memoryview, time_base: int = 0) -> EventBatch:
        words = np.frombuffer(self._join_half_word(bytes(payload)), "<u2")
        tally = _tally(words)
        self._count("unknown_words", sum(tally[kind] for kind in _UNKNOWN))
        self._count("monitoring_words", sum(tally[kind] for kind in _MONITORING))
        if not self._has_time:
            words = self._from_first_time(words)
        pieces = [self._feed(piece) for piece in self._split_at_missed_wraps(words)]
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
            unknown = [_tally(np.frombuffer(read, "<u2", len(read) // 2)) for read in (joined, data)]
            surplus = sum(unknown[0][kind] - unknown[1][kind] for kind in _UNKNOWN)
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

    def _split_at_missed_wraps(self, words: np.ndarray) -> Iterator[np.ndarray]:
        """The words in pieces, each but the first starting where time wraps unseen by the library."""
        is_high = words >> 12 == TIME_HIGH
        # The type bits are the same in all of them, so that differences need no mask.
        highs = np.concatenate([self._last_high, words[is_high].view("<i2")])
        self._last_high = highs[-1:]
        fall = highs[:-1] - highs[1:]
        is_missed = (fall > ROLLOVER_FALL) & (fall < _LIBRARY_FALL)
        start = 0
        if is_missed.any():
            # The first of `highs` is the last packet's; without one, the first has no fall.
            for wrap in np.flatnonzero(is_high)[-len(fall) :][is_missed].tolist():
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


def _tally(words: np.ndarray) -> list[int]:
    """How many words there are of each of the 16 types."""
    return np.bincount(words >> 12, minlength=16).tolist()
