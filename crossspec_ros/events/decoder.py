"""Which decoder reads which encoding of `event_camera_msgs/EventPacket`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.evt3 import Evt3Decoder
from crossspec_ros.events.libcaer import LibcaerDecoder
from crossspec_ros.events.mono import MonoDecoder


class EventDecoder(Protocol):
    """One stream's decoder: what a packet leaves unfinished is remembered for the next one.

    `damage` counts what could not be used, by kind. Whatever the bytes are, `decode` raises nothing and
    yields no event outside the sensor.
    """

    damage: Counter[str]

    def decode(self, payload: bytes | memoryview, time_base: int = 0) -> EventBatch:
        """Decode one packet's bytes; `time_base` in ns, 0 <= time_base < 2**64, as the packet carries it."""


_DECODERS: dict[str, Callable[[int, int], EventDecoder]] = {
    "evt3": Evt3Decoder,
    "libcaer": LibcaerDecoder,
    "mono": MonoDecoder,
}


def make_decoder(encoding: str, width: int, height: int) -> EventDecoder:
    """A fresh decoder for a sensor of this size; raises InputError for an encoding that none can read."""
    try:
        return _DECODERS[encoding](width, height)
    except KeyError:
        raise InputError(
            f"the event encoding '{encoding}' is unknown: configure the camera driver for one of "
            f"{', '.join(sorted(_DECODERS))}"
        ) from None
