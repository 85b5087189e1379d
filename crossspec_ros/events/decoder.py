"""Which decoder reads which encoding of `event_camera_msgs/EventPacket`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import MOST_PIXELS, EventBatch, Triggers
from crossspec_ros.events.evt3 import Evt3Decoder
from crossspec_ros.events.libcaer import LibcaerDecoder
from crossspec_ros.events.libcaer_cmp import LibcaerCmpDecoder
from crossspec_ros.events.mono import MonoDecoder
from crossspec_ros.events.trigger import TriggerDecoder


class EventDecoder(Protocol):
    """One stream's decoder: what a packet leaves unfinished is remembered for the next one.

    `damage` counts what could not be used, by kind. Whatever the bytes are, `decode` raises nothing and
    yields no event outside the sensor.
    """

    damage: Counter[str]

    @property
    def triggers(self) -> Triggers:
        """Triggers of the packet that was decoded last."""

    def decode(self, payload: bytes | memoryview, time_base: int = 0) -> EventBatch:
        """Decode one packet's bytes; `time_base` in ns, 0 <= time_base < 2**64, as the packet carries it."""


_DECODERS: dict[str, Callable[[int, int], EventDecoder]] = {
    "evt3": Evt3Decoder,
    "libcaer": LibcaerDecoder,
    "libcaer_cmp": LibcaerCmpDecoder,
    "mono": MonoDecoder,
    "trigger": TriggerDecoder,
}


def make_decoder(encoding: str, width: int, height: int) -> EventDecoder:
    """A fresh decoder for a sensor of this size.

    Raises InputError for an encoding that none can read and for a size that no sensor has.
    """
    if encoding not in _DECODERS:
        raise InputError(
            f"the event encoding '{encoding}' is unknown: configure the camera driver for one of "
            f"{', '.join(sorted(_DECODERS))}"
        )
    if encoding != "trigger" and not (0 < width <= MOST_PIXELS and 0 < height <= MOST_PIXELS):
        raise InputError(
            f"an event packet gives its sensor {width}x{height} pixels: configure the camera driver to send "
            f"the true size, {MOST_PIXELS}x{MOST_PIXELS} at most"
        )
    return _DECODERS[encoding](width, height)
