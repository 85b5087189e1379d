"""Prophesee's `.raw` files, what the camera sent in EVT 2.0, 2.1 or 3.0, and its `.dat` files, decoded events
of 64 bits; both begin with a header of lines `% key value`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch, drop_outside
from crossspec_ros.events.evt2 import Evt2Decoder, Evt21Decoder
from crossspec_ros.events.evt3 import Evt3Decoder
from crossspec_ros.events.packets import MAX_SIZE
from crossspec_ros.recordings.sensor_size import count_pixels, is_size, sensor_size
from crossspec_ros.recordings.source import damaged

_LONGEST_LINE = 4096
_MOST_LINES = 1000


def header_of(path: Path, file: BinaryIO) -> dict[str, str]:
    """The header's values by their keys in lower case; `file` is left where its data start.

    The header ends with `% end` or before the first line that is none of it. Raises InputError where there is
    none.
    """
    values: dict[str, str] = {}
    for _ in range(_MOST_LINES):
        start = file.tell()
        line = file.readline(_LONGEST_LINE)
        # Data may start with a % as well.
        if not (line.startswith(b"%") and line.endswith(b"\n") and _is_text(line)):
            file.seek(start)
            break
        key, _, value = line[1:].decode().strip().partition(" ")
        values[key.lower()] = value.strip()
        if key == "end":
            break
    if not values:
        raise InputError(
            f"'{path}' does not start with the header of a Prophesee recording, lines like '% evt 3.0': give "
            f"the file that the camera's software wrote, or copy it again"
        )
    return values


def _is_text(line: bytes) -> bool:
    return all(32 <= byte < 127 for byte in line.strip())


# Whole words of each encoding, a million of EVT 3.0.
_RAW_BLOCK = 1 << 21
_VERSIONS = {"2.0": "EVT2", "2.1": "EVT21", "3.0": "EVT3"}
# What a header that states no size says of the sensor; the largest is assumed for all others.
_RAW_SENSORS = (("genx320", (320, 320)), ("gen3", (640, 480)), ("", (1280, 720)))
# The first of Prophesee's systems that sends the halves of EVT 2.1 words in their order.
_IN_ORDER = 0x37

_RawDecoder = Evt2Decoder | Evt3Decoder


class RawEvents:
    """A `.raw` file as an EventSource; times are the sensor's, in us, with its rollovers counted.

    Raises InputError when it has no header, an encoding that is not read, or no event.
    """

    remarks: Sequence[str] = ()

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("rb")
        try:
            header = header_of(path, self._file)
            self._first_byte = self._file.tell()
            self._bytes = path.stat().st_size - self._first_byte
            encoding, options = self._encoding(header)
            size, is_stated = _sensor_size(header, options)
            self._make_decoder = _decoders(_is_legacy(header, options))[encoding], size
            self._word_bytes = self._decoder().word_bytes
            self.format = f"Prophesee raw, {encoding}, {size[0]}x{size[1]}{'' if is_stated else ' assumed'}"
            if not is_stated:
                self.remarks = [
                    f"its header states no size of the sensor, so {size[0]}x{size[1]} is assumed: if it has "
                    f"another, say so with LC_ALL=C sed -i '1i % geometry 640x480' {path.name}"
                ]
            self.start_us, self.end_us = self._first_time(), self._last_time()
        except BaseException:
            self.close()
            raise

    def batches(self) -> Iterator[EventBatch]:
        decoder = self._decoder()
        yield from map(decoder.decode, self._blocks(0))
        damage = Counter(decoder.damage)
        del damage["monitoring_words"]
        damage["torn_words"] += self._bytes % self._word_bytes > 0
        if +damage:
            raise damaged(self._path, damage)

    def close(self) -> None:
        self._file.close()

    def _encoding(self, header: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        """EVT2, EVT21 or EVT3, and what else is said of it."""
        name, *options = header.get("format", "").split(";")
        name = name or _VERSIONS.get(header.get("evt", ""), "")
        if name not in _VERSIONS.values():
            said = header.get("format") or header.get("evt") or "nothing"
            raise InputError(
                f"'{self._path}' says '{said}' of the encoding of its events, and EVT2, EVT21 and EVT3 are "
                f"read: convert it with `metavision_file_to_csv -i {self._path.name}`"
            )
        return name, {key.strip(): value for key, _, value in (option.partition("=") for option in options)}

    def _decoder(self) -> _RawDecoder:
        make, size = self._make_decoder
        return make(*size)

    def _blocks(self, start: int, end: int | None = None) -> Iterator[bytes]:
        """The data's whole words from byte `start` to byte `end`."""
        end = self._bytes if end is None else end
        end -= (end - start) % self._word_bytes
        for at in range(start, end, _RAW_BLOCK):
            self._file.seek(self._first_byte + at)
            yield self._file.read(min(_RAW_BLOCK, end - at))

    def _first_time(self) -> int:
        decoder = self._decoder()
        for batch in map(decoder.decode, self._blocks(0)):
            if len(batch):
                return int(batch.t[0])
        raise InputError(f"'{self._path}' has no events: choose another recording, or copy it again")

    def _last_time(self) -> int:
        tail = max(0, self._bytes - _RAW_BLOCK) // self._word_bytes * self._word_bytes
        # The sensor may have been still for a long time in the end.
        for start in (tail, 0):
            decoder, last = self._decoder(), None
            for block in self._blocks(0, start):
                decoder.skip(block)
            for batch in map(decoder.decode, self._blocks(start)):
                last = int(batch.t[-1]) if len(batch) else last
            if last is not None:
                return last
        return self.start_us


def _decoders(is_legacy: bool) -> dict[str, Callable[[int, int], _RawDecoder]]:
    def evt21(width: int, height: int) -> Evt21Decoder:
        return Evt21Decoder(width, height, is_legacy)

    return {"EVT2": Evt2Decoder, "EVT21": evt21, "EVT3": Evt3Decoder}


def _sensor_size(header: Mapping[str, str], options: Mapping[str, str]) -> tuple[tuple[int, int], bool]:
    """Width and height, and whether the header states them."""
    stated = f"{options.get('width')}x{options.get('height')}"
    for text in (stated, header.get("geometry", ""), f"{header.get('width')}x{header.get('height')}"):
        size = re.fullmatch(r"([0-9]{1,4})x([0-9]{1,4})", text)
        if size and is_size(int(size[1]), int(size[2])):
            return (int(size[1]), int(size[2])), True
    named = " ".join((header.get("plugin_name", ""), "gen" + header.get("sensor_generation", "")))
    return next(size for sensor, size in _RAW_SENSORS if sensor in named.lower()), False


def _is_legacy(header: Mapping[str, str], options: Mapping[str, str]) -> bool:
    """Return whether EVT 2.1 words come with their halves exchanged, by the rule of Prophesee's OpenEB."""
    stated = options.get("endianness") or header.get("endianness")
    if stated:
        return stated == "legacy"
    system = header.get("system_id", "")
    integrators = {header.get(f"{part}_integrator_name") for part in ("camera", "plugin")}
    if integrators == {None}:
        integrators = {header.get("integrator_name")}
    return integrators == {"Prophesee"} and system.isdigit() and 0 < int(system) < _IN_ORDER


_DAT_EVENT = np.dtype([("t", "<u4"), ("place", "<u4")])
_DAT_BLOCK = 1_000_000
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
            if len(kind) < 2 or kind[0] not in _CD_TYPES or kind[1] != _DAT_EVENT.itemsize:
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
            is_stated = is_size(width, height)
            self._size = width, height = (width, height) if is_stated else sensor_size(pixels)
            assumed = "" if is_stated else " assumed"
            self.format = f"Prophesee dat, version {version}, {width}x{height}{assumed}"
        except BaseException:
            self.close()
            raise

    def batches(self) -> Iterator[EventBatch]:
        damage: Counter[str] = Counter()
        for t, x, y, p in self._columns():
            batch = EventBatch(t, x.astype(np.uint16), y.astype(np.uint16), p.astype(np.uint8), *self._size)
            yield drop_outside(batch, damage)
        damage["torn_words"] += self._bytes % _DAT_EVENT.itemsize > 0
        if +damage:
            raise damaged(self._path, damage)

    def close(self) -> None:
        self._file.close()

    def _columns(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Blocks of t (N,) int64 without wraps, x, y and p (N,) uint32."""
        x_bits, y_bits = self._bits
        last = wraps = 0
        for start in range(0, self._bytes, _DAT_BLOCK * _DAT_EVENT.itemsize):
            self._file.seek(self._first_byte + start)
            data = self._file.read(_DAT_BLOCK * _DAT_EVENT.itemsize)
            events = np.frombuffer(data, _DAT_EVENT, len(data) // _DAT_EVENT.itemsize)
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
