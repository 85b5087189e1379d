"""Decoder of the event packets of one topic, for all encodings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import check_encoding
from crossspec_ros.events.evt3 import Evt3Decoder
from crossspec_ros.events.fixed import LibcaerDecoder, MonoDecoder
from crossspec_ros.events.libcaer_cmp import LibcaerCmpDecoder
from crossspec_ros.events.packed import Payload

MAX_MISSING = 1_000_000
"""A step in `seq` by more than this is another count, or damage."""


class EventDecoder(Protocol):
    """Decoder of one stream, which keeps its state from packet to packet.

    `damage` counts what could not be used, by kind. `decode` accepts any bytes and yields no event outside
    the sensor.
    """

    damage: Counter[str]

    def decode(self, payload: Payload, time_base: int = 0) -> EventBatch:
        """Decode one packet's bytes; `time_base` in ns, 0 <= time_base < 2**64, as the packet carries it."""


_DECODERS: dict[str, Callable[[int, int], EventDecoder]] = {
    "evt3": Evt3Decoder,
    "libcaer": LibcaerDecoder,
    "libcaer_cmp": LibcaerCmpDecoder,
    "mono": MonoDecoder,
}


def make_decoder(encoding: str, width: int, height: int) -> EventDecoder:
    """Return a new decoder; raises InputError as `check_encoding` does."""
    check_encoding(encoding, width, height)
    return _DECODERS[encoding](width, height)


class PacketDecoder:
    """Decodes EventPackets, of rclpy or rosbags, with a fresh decoder whenever encoding or size changes.

    `missing` counts the packets that were lost by the gaps in `seq`, which may start over.
    """

    def __init__(self) -> None:
        self.missing = 0
        self._damage: Counter[str] = Counter()
        self._decoder: EventDecoder | None = None
        self._made_for: tuple[str, int, int] | None = None
        self._seq: int | None = None

    @property
    def damage(self) -> Counter[str]:
        """Counts of unusable data so far; a sensor's monitoring words are no damage."""
        damage = self._damage + Counter(dict(self._decoder.damage) if self._decoder else {})
        del damage["monitoring_words"]
        return damage

    def decode(self, packet: Any) -> EventBatch:
        """Return the packet's events, `t` in us of the sensor; raises InputError for an unreadable packet."""
        self._count_gap(packet.seq)
        if packet.is_bigendian:
            raise InputError("an event packet is big-endian: configure the camera driver for little-endian")
        kind = (packet.encoding, packet.width, packet.height)
        if self._decoder is None or kind != self._made_for:
            fresh = make_decoder(*kind)
            self._damage = self.damage
            self._decoder, self._made_for = fresh, kind
        return self._decoder.decode(memoryview(packet.events), packet.time_base)

    def _count_gap(self, seq: int) -> None:
        if self._seq is not None:
            step = seq - self._seq
            self.missing += step - 1 if 0 < step <= MAX_MISSING else 0
        self._seq = seq
