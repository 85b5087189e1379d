"""Prophesee's `.raw` files, in EVT 2.0, 2.1 or 3.0, and `.dat` files, decoded events of 64 bits.

Both begin with a header of lines `% key value`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch, drop_outside
from crossspec_ros.events.evt2 import Evt2Decoder, Evt21Decoder
from crossspec_ros.events.evt3 import Evt3Decoder
from crossspec_ros.recordings.sensor_size import count_pixels, is_size, sensor_size
from crossspec_ros.recordings.source import damaged

_MAX_LINE = 4096


def header_of(path: Path, file: BinaryIO) -> dict[str, str]:
    """Return the header's values by their keys in lower case, and leave `file` where its data start.

    The header ends with `% end` or before the first other line. Raises InputError if there is no header.
    """
    values: dict[str, str] = {}
    while "end" not in values:
        start = file.tell()
        line = file.readline(_MAX_LINE)
        # Data may start with a % as well.
        if not (line.startswith(b"%") and line.endswith(b"\n") and _is_text(line)):
            file.seek(start)
            break
        key, _, value = line[1:].decode().strip().partition(" ")
        values[key.lower()] = value.strip()
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

    Raises InputError if it has no header or another encoding.
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
            make = _decoders(_is_legacy(header, options))[encoding]
            self._decoder = partial(make, *size)
            self.format = f"Prophesee raw, {encoding}, {size[0]}x{size[1]}{'' if is_stated else ' assumed'}"
            if not is_stated:
                self.remarks = [
                    f"its header states no size of the sensor, so {size[0]}x{size[1]} is assumed: if it has "
                    f"another, say so with LC_ALL=C sed -i '1i % geometry 640x480' {path.name}"
                ]
        except BaseException:
            self.close()
            raise

    def batches(self) -> Iterator[EventBatch]:
        decoder = self._decoder()
        torn = self._bytes % decoder.word_bytes
        for at in range(0, self._bytes - torn, _RAW_BLOCK):
            self._file.seek(self._first_byte + at)
            yield decoder.decode(self._file.read(min(_RAW_BLOCK, self._bytes - torn - at)))
        damage = Counter(decoder.damage)
        del damage["monitoring_words"]
        damage["torn_words"] += torn > 0
        if +damage:
            raise damaged(self._path, damage)

    def close(self) -> None:
        self._file.close()

    def _encoding(self, header: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        """Return EVT2, EVT21 or EVT3, and its options."""
        name, *options = header.get("format", "").split(";")
        name = name or _VERSIONS.get(header.get("evt", ""), "")
        if name not in _VERSIONS.values():
            said = header.get("format") or header.get("evt") or "nothing"
            raise InputError(
                f"'{self._path}' says '{said}' of the encoding of its events, and EVT2, EVT21 and EVT3 are "
                f"read: convert it with `metavision_file_to_csv -i {self._path.name}`"
            )
        return name, {key.strip(): value for key, _, value in (option.partition("=") for option in options)}


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
_CD_TYPES = (0, 12)
_COORDINATE = (1 << 14) - 1
_ODD_US = 1_000_000
"""A single event whose time is farther from those around it is damaged."""


class DatEvents:
    """A `.dat` file of CD events as an EventSource; `t` is the sensor's time in us, its wraps counted.

    Specification: https://docs.prophesee.ai/stable/data/file_formats/dat.html. The size is the stated one, or
    that of the smallest common sensor that holds the first block. Raises InputError if the file has no
    header, an old version or other events.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("rb")
        try:
            header = header_of(path, self._file)
            version, kind = header.get("version", "2"), self._file.read(2)
            if version != "2":
                raise InputError(
                    f"'{path}' is of version {version}, and version 2 is read: convert it with Prophesee's "
                    f"metavision_file_to_dat"
                )
            if len(kind) < 2 or kind[0] not in _CD_TYPES or kind[1] != _DAT_EVENT.itemsize:
                raise InputError(
                    f"'{path}' holds no CD events (its type and size are {list(kind)}, not 12 and 8): give "
                    f"the file of CD events, or write it again with `metavision_file_to_dat`"
                )
            self._first_byte = self._file.tell()
            stated = [header.get(name, "") for name in ("width", "height")]
            is_stated = all(map(str.isdecimal, stated)) and is_size(*map(int, stated))
            self._size = (int(stated[0]), int(stated[1])) if is_stated else self._assumed_size()
            size = "{}x{}".format(*self._size)
            self.format = f"Prophesee dat, version 2, {size}{'' if is_stated else ' assumed'}"
        except BaseException:
            self.close()
            raise

    def batches(self) -> Iterator[EventBatch]:
        damage: Counter[str] = Counter()
        last_us = None
        for events in self._blocks(damage):
            # The 32 bits of time wrap: a step is the shorter one of both directions.
            last_us = int(events["t"][0]) if last_us is None else last_us
            steps = np.diff(events["t"], prepend=np.uint32(last_us & 0xFFFFFFFF)).view(np.int32)
            t = last_us + np.cumsum(steps, dtype=np.int64)
            last_us = int(t[-1])
            x, y, p = _places(events)
            batch = EventBatch(t, x.astype(np.uint16), y.astype(np.uint16), p.astype(np.uint8), *self._size)
            is_odd = _find_odd(t)
            if is_odd.any():
                damage["damaged_times"] += int(np.count_nonzero(is_odd))
                batch = batch[~is_odd]
            yield drop_outside(batch, damage)
        if +damage:
            raise damaged(self._path, damage)

    def close(self) -> None:
        self._file.close()

    def _blocks(self, damage: Counter[str]) -> Iterator[np.ndarray]:
        self._file.seek(self._first_byte)
        while data := self._file.read(_DAT_BLOCK * _DAT_EVENT.itemsize):
            damage["torn_words"] += len(data) % _DAT_EVENT.itemsize > 0
            if len(data) >= _DAT_EVENT.itemsize:
                yield np.frombuffer(data, _DAT_EVENT, len(data) // _DAT_EVENT.itemsize)

    def _assumed_size(self) -> tuple[int, int]:
        x, y, _ = _places(next(self._blocks(Counter()), np.empty(0, _DAT_EVENT)))
        return sensor_size(np.array([count_pixels(x), count_pixels(y)]))


def _places(events: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return x, y and p (N,) uint32."""
    place = events["place"]
    return place & _COORDINATE, place >> 14 & _COORDINATE, place >> 28 & 1


def _find_odd(t: np.ndarray) -> np.ndarray:
    """Return (N,) bool: whether a time is negative, or far from both neighbours, which are close together."""
    steps = np.diff(t)
    is_odd = t < 0
    before, after = steps[:-1], steps[1:]
    is_odd[1:-1] |= (abs(before) > _ODD_US) & (abs(after) > _ODD_US) & (abs(before + after) < _ODD_US)
    return is_odd
