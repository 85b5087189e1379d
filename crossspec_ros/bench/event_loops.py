"""The straightforward Python loop over an event stream: what everything else is measured against."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from crossspec_ros.bench.event_streams import Packet, Stream

Event = tuple[int, int, int, int]
"""t in us, x, y, p."""


def decode(stream: Stream) -> Iterator[list[Event]]:
    """The events of each packet."""
    loop = _LOOPS[stream.encoding]()
    for packet in stream.packets:
        yield loop(packet)


def _evt3() -> Callable[[Packet], list[Event]]:
    high = low = row = base = polarity = 0

    def loop(packet: Packet) -> list[Event]:
        nonlocal high, low, row, base, polarity
        events = []
        for (word,) in struct.iter_unpack("<H", packet.payload):
            kind, value = word >> 12, word & 0xFFF
            if kind == 0x0:
                row = value & 0x7FF
            elif kind == 0x2:
                events.append((high << 12 | low, value & 0x7FF, row, value >> 11))
            elif kind == 0x3:
                base, polarity = value & 0x7FF, value >> 11
            elif kind in (0x4, 0x5):
                size = 12 if kind == 0x4 else 8
                for i in range(size):
                    if value >> i & 1:
                        events.append((high << 12 | low, base + i, row, polarity))
                base += size
            elif kind == 0x6:
                low = value
            elif kind == 0x8:
                high = (high & ~0xFFF) + (4096 if value < (high & 0xFFF) - 10 else 0) | value
        return events

    return loop


def _libcaer_cmp() -> Callable[[Packet], list[Event]]:
    column = base = polarity = 0

    def loop(packet: Packet) -> list[Event]:
        nonlocal column, base, polarity
        events, start = [], packet.time_base // 1000
        high = low = 0
        for (word,) in struct.iter_unpack("<H", packet.payload):
            kind, value = word >> 12, word & 0xFFF
            t = start + (high << 12 | low)
            if kind == 0:
                high = value
            elif kind == 1:
                low = value
            elif kind == 2:
                column = value & 0x7FF
            elif kind == 3:
                events.append((t, column, value & 0x7FF, value >> 11))
            elif kind == 4:
                base, polarity = value & 0x7FF, value >> 11
            elif kind == 5:
                for i in range(8):
                    if value >> i & 1:
                        events.append((t, column, base + i, polarity))
                base += 8
        return events

    return loop


def _libcaer() -> Callable[[Packet], list[Event]]:
    def loop(packet: Packet) -> list[Event]:
        start = packet.time_base // 1000
        return [
            (start + us, data >> 17, data >> 2 & 0x7FFF, data >> 1 & 1)
            for data, us in struct.iter_unpack("<Ii", packet.payload)
        ]

    return loop


def _mono() -> Callable[[Packet], list[Event]]:
    def loop(packet: Packet) -> list[Event]:
        return [
            ((packet.time_base + dt) // 1000, x, yp & 0x7FFF, yp >> 15)
            for dt, x, yp in struct.iter_unpack("<IHH", packet.payload)
        ]

    return loop


def _dvs() -> Callable[[Packet], list[Event]]:
    def loop(packet: Packet) -> list[Event]:
        data, events = packet.payload, []
        (length,) = struct.unpack_from("<I", data, 12)
        at = 16 + length + -(12 + length) % 4
        (count,) = struct.unpack_from("<I", data, at + 8)
        at += 12
        for _ in range(count):
            at += (at - 4) % 2
            x, y = struct.unpack_from("<HH", data, at)
            at += 4 + -at % 4
            sec, nanosec, p = struct.unpack_from("<iIB", data, at)
            at += 9
            events.append((sec * 1_000_000 + nanosec // 1000, x, y, p))
        return events

    return loop


_LOOPS: dict[str, Callable[[], Callable[[Packet], list[Event]]]] = {
    "evt3": _evt3,
    "libcaer": _libcaer,
    "libcaer_cmp": _libcaer_cmp,
    "mono": _mono,
    "dvs": _dvs,
}
