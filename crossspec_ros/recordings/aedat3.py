"""iniVation's AEDAT 3.1: packets of polarity events among others, behind a header of lines with a #."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch, drop_outside
from crossspec_ros.events.packets import MAX_SIZE, MAX_US
from crossspec_ros.recordings.sensor_size import count_pixels, sensor_size
from crossspec_ros.recordings.source import damaged

# Type, source, size of an event, offset of its time, overflows of time, capacity, number, valid ones.
_HEAD = struct.Struct("<2h6i")
_POLARITY = 1
# Bit 0 of data is set in valid events, bit 1 is the polarity, bits 2-16 are y, 17-31 x; us has 31 bits.
_EVENT = np.dtype([("data", "<u4"), ("us", "<i4")])
_BLOCK = 1_000_000
_PACKET = np.dtype([("first_byte", "<i8"), ("number", "<i4"), ("overflows", "<i4")])
"""Place and number of polarity events; fewer than promised where the file was cut."""
_LARGEST_EVENT = 1 << 26
_LONGEST_LINE = 4096
_END_OF_HEADER = b"#!END-HEADER"
_SENSORS = {
    "DVS128": (128, 128),
    "DAVIS128": (128, 128),
    "DAVIS208": (208, 192),
    "DAVIS240": (240, 180),
    "DAVIS346": (346, 260),
    "DAVIS640": (640, 480),
}


class Aedat3Events:
    """The polarity events of an AEDAT 3.1 file as an EventSource; frames and all else are left out.

    Specification: https://docs.inivation.com/software/software-advanced-usage/file-formats/aedat-3.1.html.
    Raises InputError for other versions, and when the file has no events.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("rb")
        try:
            sensor = self._read_header()
            self._bytes = path.stat().st_size
            self._damage: Counter[str] = Counter()
            self._packets = np.fromiter(self._walk(), _PACKET)
            stated = next((size for name, size in _SENSORS.items() if name in sensor.upper()), None)
            self._size = stated or self._needed_size()
            self.start_us, self.end_us = self._edge(0), self._edge(-1)
            assumed = "" if stated else " assumed"
            self.format = f"AEDAT 3.1, events alone, {self._size[0]}x{self._size[1]}{assumed}"
        except BaseException:
            self.close()
            raise

    def batches(self) -> Iterator[EventBatch]:
        damage = self._damage.copy()
        for packets in self._blocks(self._packets):
            yield drop_outside(EventBatch(*self._columns(packets), *self._size), damage)
        if damage:
            raise damaged(self._path, damage)

    def close(self) -> None:
        self._file.close()

    def _read_header(self) -> str:
        """The description of the sensor; the file is left where the packets start."""
        first = self._file.readline(_LONGEST_LINE)
        version = re.match(rb"#!AER-DAT(\d\.\d)", first)
        if version is None or version[1] != b"3.1":
            said = f"AEDAT {version[1].decode()}" if version else "AEDAT 1 or no AEDAT file"
            remedy = "open it in iniVation's DV and record it as .aedat4 there"
            if version and version[1] >= b"4":
                remedy = "rename it to end in .aedat4"
            raise InputError(f"'{self._path}' is {said}, and 3.1 and 4 are read: {remedy}")
        sensor = ""
        while line := self._file.readline(_LONGEST_LINE):
            if line.startswith(_END_OF_HEADER):
                return sensor
            if source := re.match(rb"#Source \d+: (.*)", line):
                sensor = sensor or source[1].decode(errors="replace").strip()
            if not line.startswith(b"#"):
                break
        raise InputError(f"'{self._path}' has a header without an end: copy the recording again")

    def _walk(self) -> Iterator[tuple[int, int, int]]:
        """Each `_PACKET`, as far as the file goes."""
        at = self._file.tell()
        while at < self._bytes:
            self._file.seek(at)
            head = self._file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                self._damage["cut_packets"] += 1
                return
            kind, _, size, _, overflows, _, number, _ = _HEAD.unpack(head)
            is_sound = (
                kind >= 0 and 0 < size < _LARGEST_EVENT and number >= 0 and 0 <= overflows < MAX_US >> 31
            )
            is_sound &= kind != _POLARITY or size == _EVENT.itemsize
            if not is_sound:
                self._damage["bytes_behind_a_broken_packet"] += self._bytes - at
                return
            at += _HEAD.size
            there = min(number, (self._bytes - at) // size)
            if there < number:
                self._damage["cut_packets"] += 1
            # One packet may be the whole file.
            for first in range(0, there if kind == _POLARITY else 0, _BLOCK):
                yield at + first * size, min(_BLOCK, there - first), overflows
            at += number * size

    def _blocks(self, packets: np.ndarray) -> Iterator[np.ndarray]:
        """Neighbouring packets with up to `_BLOCK` events: a packet of its own for each event takes long."""
        behind = np.cumsum(packets["number"], dtype=np.int64)
        first = 0
        while first < len(behind):
            before = behind[first - 1] if first else 0
            last = int(np.searchsorted(behind, before + _BLOCK, "right"))
            yield packets[first:last]
            first = last

    def _columns(self, packets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """t (N,) int64 us, x and y (N,) uint16, p (N,) uint8 of their valid events."""
        stored = []
        for first_byte, number, _ in packets.tolist():
            self._file.seek(first_byte)
            stored.append(self._file.read(number * _EVENT.itemsize))
        events = np.frombuffer(b"".join(stored), _EVENT)
        overflows = np.repeat(packets["overflows"].astype(np.int64), packets["number"])
        is_valid = (events["data"] & 1 == 1) & (events["us"] >= 0)
        events = events[is_valid]
        data, t = events["data"], events["us"].astype(np.int64) + (overflows[is_valid] << 31)
        x, y = data >> 17, data >> 2 & 0x7FFF
        return t, x.astype(np.uint16), y.astype(np.uint16), (data >> 1 & 1).astype(np.uint8)

    def _needed_size(self) -> tuple[int, int]:
        """Size of the smallest common sensor that holds the events."""
        pixels = np.zeros((2, MAX_SIZE), np.int64)
        for packets in self._blocks(self._packets):
            _, x, y, _ = self._columns(packets)
            pixels += [count_pixels(axis) for axis in (x, y)]
        return sensor_size(pixels)

    def _edge(self, which: int) -> int:
        """Time of the first or last (`which` = 0, -1) event."""
        step = 1 if which == 0 else -1
        for packets in self._blocks(self._packets[::step]):
            t, *_ = self._columns(packets[::step])
            if len(t):
                return int(t[which])
        raise InputError(
            f"'{self._path}' has no events: record it with the events switched on, or copy it again"
        )
