"""Prophesee's `.dat` files: decoded events of 64 bits behind a header."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch, drop_outside
from crossspec_ros.events.packets import MAX_SIZE
from crossspec_ros.recordings.prophesee import header_of
from crossspec_ros.recordings.sensor_size import count_pixels, is_size, sensor_size
from crossspec_ros.recordings.source import damaged

_EVENT = np.dtype([("t", "<u4"), ("place", "<u4")])
_BLOCK = 1_000_000
# Bits of x and of y, above which the polarity's lowest bit is, by version.
_BITS = {True: (9, 8), False: (14, 14)}
_CD_TYPES = (0, 12)
_RANGE_US = 1 << 32


class DatEvents:
    """A `.dat` file of CD events as an EventSource; `t` is the sensor's time in us, its wraps counted.

    Specification: https://docs.prophesee.ai/stable/data/file_formats/dat.html. The size is the stated one, or
    that of the smallest common sensor that holds all events. Raises InputError when the file has no header,
    other events or none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("rb")
        try:
            header = header_of(path, self._file)
            kind = self._file.read(2)
            if len(kind) < 2 or kind[0] not in _CD_TYPES or kind[1] != _EVENT.itemsize:
                raise InputError(
                    f"'{path}' holds no CD events (its type and size are {list(kind)}, not 12 and 8): give "
                    f"the file of CD events, or write it again with `metavision_file_to_dat`"
                )
            self._first_byte = self._file.tell()
            self._bytes = path.stat().st_size - self._first_byte
            version = header.get("version", "2")
            self._bits = _BITS[version in ("0", "1")]
            self.start_us, self.end_us, pixels = self._survey()
            width, height = (_number(header.get(name, "")) for name in ("width", "height"))
            self._size = width, height = (width, height) if is_size(width, height) else sensor_size(pixels)
            self.format = f"Prophesee dat, version {version}, {width}x{height}"
        except BaseException:
            self.close()
            raise

    def batches(self) -> Iterator[EventBatch]:
        damage: Counter[str] = Counter()
        for t, x, y, p in self._columns():
            batch = EventBatch(t, x.astype(np.uint16), y.astype(np.uint16), p.astype(np.uint8), *self._size)
            yield drop_outside(batch, damage)
        damage["torn_words"] += self._bytes % _EVENT.itemsize > 0
        if +damage:
            raise damaged(self._path, damage)

    def close(self) -> None:
        self._file.close()

    def _columns(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Blocks of t (N,) int64 without wraps, x, y and p (N,) uint32."""
        x_bits, y_bits = self._bits
        last = wraps = 0
        for start in range(0, self._bytes, _BLOCK * _EVENT.itemsize):
            self._file.seek(self._first_byte + start)
            data = self._file.read(_BLOCK * _EVENT.itemsize)
            events = np.frombuffer(data, _EVENT, len(data) // _EVENT.itemsize)
            if len(events):
                t, place = events["t"].astype(np.int64), events["place"]
                # Only a fall by half of the range means that the 32 bits wrapped.
                falls = wraps + np.cumsum(np.diff(t, prepend=last) < -_RANGE_US // 2)
                last, wraps = int(t[-1]), int(falls[-1])
                x, y = place & ((1 << x_bits) - 1), place >> x_bits & ((1 << y_bits) - 1)
                yield t + falls * _RANGE_US, x, y, place >> x_bits + y_bits & 1

    def _survey(self) -> tuple[int, int, np.ndarray]:
        """Times of the first and the last event, and how often there is each x and each y."""
        first, last, pixels = None, 0, np.zeros((2, MAX_SIZE), np.int64)
        for t, x, y, _ in self._columns():
            inside = (x < MAX_SIZE) & (y < MAX_SIZE)
            if inside.any():
                first, last = int(t[inside][0]) if first is None else first, int(t[inside][-1])
                pixels += [count_pixels(axis[inside]) for axis in (x, y)]
        if first is None:
            raise InputError(f"'{self._path}' has no events: choose another recording, or copy it again")
        return first, last, pixels


def _number(text: str) -> int:
    """A width or height as it is stated; 0 for what is none."""
    return int(text) if re.fullmatch(r"[0-9]{1,4}", text) else 0
