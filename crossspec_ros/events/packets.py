"""Batches of events cut into `mono` packets as a live camera publishes them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch, is_sensor
from crossspec_ros.events.cdr import EVENT_PACKET, RecordedMessage, event_packet
from crossspec_ros.events.fixed import encode_mono

PACKET_US = 10_000
# An event takes 8 bytes, so that packets stay below a megabyte, which DDS carries well.
MAX_EVENTS = 100_000
# ROS time has 31 bits of seconds.
MAX_US = (1 << 31) * 1_000_000
# A sensor that was still for longer than this had been stopped, or its clock was set.
_LONGEST_STILL = 60_000_000 // PACKET_US
STILL_PACKETS = 10_000
"""Number of packets without events after which their interval doubles: a small file may last for years."""


def mono_packet(batch: EventBatch, stamp_ns: int, seq: int) -> RecordedMessage:
    """Return an EventPacket; raises ValueError if the events are more than 4 s apart."""
    base_ns = int(batch.t.min()) * 1000 if len(batch) else stamp_ns
    size = batch.width, batch.height
    data = event_packet(stamp_ns, encode_mono(batch, base_ns), "mono", size, seq, base_ns)
    return RecordedMessage(stamp_ns, "events", EVENT_PACKET, data)


class PacketCutter:
    """Cuts one sensor's batches into EventPackets on ROS time = sensor time.

    Each is stamped with its first event. Packets hold at most 10 ms, on a grid from the first event on, and
    at most `MAX_EVENTS` events. While the sensor is still, packets without events carry the time on, so that
    windows close. Errors name the `source`.
    """

    def __init__(self, source: object) -> None:
        self._source = source
        self._seq = 0
        self._origin_us: int | None = None
        self._reached = self._still = 0
        self._last: EventBatch | None = None
        self._stamped_us = 0

    def cut(self, batch: EventBatch) -> Iterator[RecordedMessage]:
        """Raise InputError for events outside the sensor or ROS time, and for a too large sensor."""
        if not len(batch):
            return
        self._check(batch)
        if self._origin_us is None:
            self._origin_us = int(batch.t[0])
        cells = (batch.t - self._origin_us) // PACKET_US
        cuts = [0, *(np.flatnonzero(np.diff(cells)) + 1).tolist(), len(batch)]
        for low, high in pairwise(cuts):
            cell = int(cells[low])
            if cell - self._reached <= _LONGEST_STILL:
                stride = 1 << self._still // STILL_PACKETS
                stills = range(self._reached + 1, cell, stride)
                # Many short gaps are not worth a packet each.
                for still in stills if cell - self._reached > stride else ():
                    self._still += 1
                    t_us = self._origin_us + still * PACKET_US
                    yield self._packet(t_us, batch[:0])
            for first in range(low, high, MAX_EVENTS):
                piece = batch[first : min(first + MAX_EVENTS, high)]
                yield self._packet(int(piece.t[0]), piece)
            is_set_back = cell < self._reached - _LONGEST_STILL
            self._reached = cell if is_set_back else max(self._reached, cell)
        self._last = batch[-1:]

    def finish(self) -> Iterator[RecordedMessage]:
        """Yield a packet without events at the time of the last event, unless a packet has that stamp."""
        if self._last and (t_us := int(self._last.t[0])) > self._stamped_us:
            yield self._packet(t_us, self._last[:0])

    def _packet(self, t_us: int, batch: EventBatch) -> RecordedMessage:
        self._stamped_us = t_us
        self._seq += 1
        return mono_packet(batch, t_us * 1000, self._seq - 1)

    def _check(self, batch: EventBatch) -> None:
        size = f"{batch.width}x{batch.height}"
        if not is_sensor(batch.width, batch.height):
            raise InputError(
                f"'{self._source}' comes from a sensor of {size}: choose a recording of a smaller sensor, of "
                f"4 million pixels at most"
            )
        first, last = int(batch.t.min()), int(batch.t.max())
        if first < 0 or last >= MAX_US:
            raise InputError(
                f"'{self._source}' has events at {first} to {last} us, and ROS time goes from 0 to the year "
                f"2038: copy it again, or correct its times"
            )
        x, y = int(batch.x.max()), int(batch.y.max())
        if x >= batch.width or y >= batch.height:
            raise InputError(
                f"'{self._source}' has events up to x = {x}, y = {y} outside its sensor of {size}: copy it "
                f"again, or correct the size it states"
            )
