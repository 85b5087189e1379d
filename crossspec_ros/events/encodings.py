"""Encodings of event packets, apart from their decoders, which take long to import."""

from __future__ import annotations

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import is_sensor

ENCODINGS = ("evt3", "libcaer", "libcaer_cmp", "mono")


def check_encoding(encoding: str, width: int, height: int) -> None:
    """Raise InputError for an unknown encoding or an impossible size of the sensor."""
    if encoding not in ENCODINGS:
        raise InputError(
            f"the event encoding '{encoding}' is unknown: configure the camera driver for one of "
            f"{', '.join(ENCODINGS)}"
        )
    if not is_sensor(width, height):
        raise InputError(
            f"an event packet gives its sensor {width}x{height} pixels: configure the camera driver to send "
            f"the true size, 4 million pixels at most"
        )
