"""Prophesee's `.raw` files: what the camera sent, in EVT 2.0, 2.1 or 3.0, behind a header."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.evt2 import Evt2Decoder, Evt21Decoder
from crossspec_ros.events.evt3 import Evt3Decoder
from crossspec_ros.recordings.prophesee import header_of
from crossspec_ros.recordings.sensor_size import is_size
from crossspec_ros.recordings.source import damaged

# Whole words of each encoding, a million of EVT 3.0.
_BLOCK = 1 << 21
_VERSIONS = {"2.0": "EVT2", "2.1": "EVT21", "3.0": "EVT3"}
# What a header that states no size says of the sensor; the largest is assumed for all others.
_SENSORS = (("genx320", (320, 320)), ("gen3", (640, 480)), ("", (1280, 720)))
# The first of Prophesee's systems that sends the halves of EVT 2.1 words in their order.
_IN_ORDER = 0x37

_Decoder = Evt2Decoder | Evt3Decoder


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

    def _decoder(self) -> _Decoder:
        make, size = self._make_decoder
        return make(*size)

    def _blocks(self, start: int, end: int | None = None) -> Iterator[bytes]:
        """The data's whole words from byte `start` to byte `end`."""
        end = self._bytes if end is None else end
        end -= (end - start) % self._word_bytes
        for at in range(start, end, _BLOCK):
            self._file.seek(self._first_byte + at)
            yield self._file.read(min(_BLOCK, end - at))

    def _first_time(self) -> int:
        decoder = self._decoder()
        for batch in map(decoder.decode, self._blocks(0)):
            if len(batch):
                return int(batch.t[0])
        raise InputError(f"'{self._path}' has no events: choose another recording, or copy it again")

    def _last_time(self) -> int:
        tail = max(0, self._bytes - _BLOCK) // self._word_bytes * self._word_bytes
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


def _decoders(is_legacy: bool) -> dict[str, Callable[[int, int], _Decoder]]:
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
    return next(size for sensor, size in _SENSORS if sensor in named.lower()), False


def _is_legacy(header: Mapping[str, str], options: Mapping[str, str]) -> bool:
    """Whether EVT 2.1 words come with their halves exchanged, decided as Prophesee's OpenEB does."""
    stated = options.get("endianness") or header.get("endianness")
    if stated:
        return stated == "legacy"
    system = header.get("system_id", "")
    return header.get("integrator_name") == "Prophesee" and system.isdigit() and 0 < int(system) < _IN_ORDER
