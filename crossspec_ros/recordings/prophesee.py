"""Prophesee's `.raw` files, in EVT 2.0, 2.1 or 3.0, and `.dat` files, decoded events of 64 bits.

Both begin with a header of lines `% key value`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch, drop_outside, is_sensor
from crossspec_ros.events.evt2 import Evt2Decoder, Evt21Decoder
from crossspec_ros.events.evt3 import Evt3Decoder
from crossspec_ros.recordings.source import SourceRecording, damaged
from crossspec_ros.recordings.tables import assume_size

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
        is_text = line.isascii() and line.strip().decode().isprintable()
        if not (line.startswith(b"%") and line.endswith(b"\n") and is_text):
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


# Complete words of each encoding, a million of EVT 3.0.
_RAW_BLOCK = 1 << 21
_VERSIONS = {"2.0": "EVT2", "2.1": "EVT21", "3.0": "EVT3"}
# Sizes by the names of sensors in headers without a size; the largest is assumed for other names.
_RAW_SENSORS = (("genx320", (320, 320)), ("gen3", (640, 480)), ("", (1280, 720)))
# The first of Prophesee's systems that sends the halves of EVT 2.1 words in their order.
_IN_ORDER = 0x37


class RawEvents(SourceRecording):
    """A `.raw` file as a recording; times are the sensor's, in us, with its rollovers counted.

    Raises InputError if it has no header or another encoding.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with path.open("rb") as file:
            header = header_of(path, file)
            self._first_byte = file.tell()
        name, *options = header.get("format", "").split(";")
        name = name or _VERSIONS.get(header.get("evt", ""), "")
        if name not in _VERSIONS.values():
            stated = header.get("format") or header.get("evt") or "nothing"
            raise InputError(
                f"'{path}' has events in the encoding '{stated}', but EVT2, EVT21 and EVT3 are read: "
                f"convert it with `metavision_file_to_csv -i {path.name}`"
            )
        pairs = (option.partition("=") for option in options)
        header |= {f"format_{key.strip()}": value for key, _, value in pairs}
        size = _stated_size(header)
        note = "" if size else " assumed"
        if not size:
            named = " ".join((header.get("plugin_name", ""), "gen" + header.get("sensor_generation", "")))
            size = next(size for sensor, size in _RAW_SENSORS if sensor in named.lower())
            self.remarks.append(
                f"its header states no size of the sensor, so {size[0]}x{size[1]} is assumed: if it has "
                f"another, set it with LC_ALL=C sed -i '1i % geometry 640x480' {path.name}"
            )
        self.format = f"Prophesee raw, {name}, {size[0]}x{size[1]}{note}"
        decoders: dict[str, Callable[[], Evt2Decoder | Evt3Decoder]] = {
            "EVT2": partial(Evt2Decoder, *size),
            "EVT21": partial(Evt21Decoder, *size, _is_legacy(header)),
            "EVT3": partial(Evt3Decoder, *size),
        }
        self._decoder = decoders[name]

    def batches(self) -> Iterator[EventBatch]:
        decoder, torn = self._decoder(), 0
        with self._path.open("rb") as file:
            file.seek(self._first_byte)
            while data := file.read(_RAW_BLOCK):
                torn = len(data) % decoder.word_bytes
                yield decoder.decode(data[: len(data) - torn])
        damage = Counter(decoder.damage)
        del damage["monitoring_words"]
        damage["torn_words"] += torn > 0
        if +damage:
            raise damaged(self._path, damage)


def _stated_size(header: Mapping[str, str]) -> tuple[int, int] | None:
    """Return (width, height) if the header states them."""
    for prefix in ("format_", ""):
        sides = [header.get(prefix + name, "") for name in ("width", "height")]
        for text in ("x".join(sides), header.get("geometry", "")):
            size = re.fullmatch(r"([0-9]{1,4})x([0-9]{1,4})", text)
            if size and is_sensor(int(size[1]), int(size[2])):
                return int(size[1]), int(size[2])
    return None


def _is_legacy(header: Mapping[str, str]) -> bool:
    """Return whether EVT 2.1 words come with their halves exchanged, by the rule of Prophesee's OpenEB."""
    if stated := header.get("format_endianness") or header.get("endianness"):
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


class DatEvents(SourceRecording):
    """A `.dat` file of CD events as a recording; `t` is the sensor's time in us, its wraps counted.

    Specification: https://docs.prophesee.ai/stable/data/file_formats/dat.html. The size is the stated one, or
    that of the smallest common sensor that holds the first block. Raises InputError if the file has no
    header, an old version or other events.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with path.open("rb") as file:
            header = header_of(path, file)
            version, kind = header.get("version", "2"), [*file.read(2)]
            self._first_byte = file.tell()
        if version != "2":
            raise InputError(
                f"'{path}' is of version {version}, and version 2 is read: convert it with Prophesee's "
                f"metavision_file_to_dat"
            )
        if kind not in [[type, _DAT_EVENT.itemsize] for type in _CD_TYPES]:
            raise InputError(
                f"'{path}' holds no CD events (its type and size are {kind}, not 12 and 8): give the file of "
                f"CD events, or write it again with `metavision_file_to_dat`"
            )
        stated = _stated_size(header)
        first = next(self._blocks(Counter()), np.empty(0, _DAT_EVENT))
        self._size = stated or assume_size(*_places(first)[:2])
        self.format = "Prophesee dat, version 2, {}x{}".format(*self._size) + " assumed" * (not stated)

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

    def _blocks(self, damage: Counter[str]) -> Iterator[np.ndarray]:
        with self._path.open("rb") as file:
            file.seek(self._first_byte)
            while data := file.read(_DAT_BLOCK * _DAT_EVENT.itemsize):
                damage["torn_words"] += len(data) % _DAT_EVENT.itemsize > 0
                if len(data) >= _DAT_EVENT.itemsize:
                    yield np.frombuffer(data, _DAT_EVENT, len(data) // _DAT_EVENT.itemsize)


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
