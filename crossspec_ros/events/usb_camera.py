"""Live event cameras at a USB port, through neuromorphic-drivers."""

from __future__ import annotations

import threading
from collections.abc import Generator
from functools import partial
from typing import Any

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.camera_source import Backlog, Clock, Item, Source, UnreachableError, reason
from crossspec_ros.events.cdr import EVENT_PACKET, IMAGE, RecordedMessage, event_packet, image
from crossspec_ros.events.packets import MAX_EVENTS, mono_packet

_RAW, _DECODED = ("prophesee_evk4", "prophesee_evk3_hd"), ("inivation_dvxplorer", "inivation_davis346")
"""Kinds of cameras that send EVT3, which is published as it comes, and kinds that the library decodes."""
_MAX_WAIT_S = 0.1
_MIN_PACKET_S = 0.002
"""Pause after a read that leaves nothing behind, because many small messages cost more than a few large."""
_MAX_TRANSFERS = 8
"""Maximum USB transfers of at most 128 kB in a packet, for DDS carries a megabyte well."""


def open_camera(serial: str) -> Source:
    """Return the camera with this serial number, or the first one that is found if it is empty."""
    name = f"USB camera {serial}" if serial else "the USB camera"
    return Source(name, ("events", "image"), partial(_connect, serial), _read)


def _connect(serial: str) -> Any:
    try:
        import neuromorphic_drivers as nd
    except ImportError:
        raise InputError(
            "usb_camera needs neuromorphic_drivers: run pip install neuromorphic-drivers"
        ) from None
    options = {"iterator_timeout": _MAX_WAIT_S, "iterator_maximum_raw_packets": _MAX_TRANSFERS}
    failure = ""
    for kind in (*_RAW, *_DECODED):
        # Without a configuration, the library also searches the network.
        configuration = getattr(nd, kind).Configuration()
        try:
            return nd.open(configuration, raw=kind in _RAW, serial=serial or None, **options)
        except RuntimeError as error:
            # The message for an absent camera has this word.
            failure = failure if "found" in str(error) else reason(error)
    named = f" with the serial number {serial}" if serial else ""
    problem = "is attached and free: plug it in, or end the program that uses it"
    if failure:
        problem = (
            f"can be opened ({failure}): run neuromorphic-drivers-install-udev-rules and the command that it "
            f"prints, and plug the camera in again"
        )
    raise UnreachableError(f"no USB camera{named} {problem}")


def _read(device: Any, stop: threading.Event, now_ns: Clock) -> Generator[Item]:
    """Yield messages and the backlog until `stop` is set; raises UnreachableError once the camera is gone."""
    seq, dropped = 0, 0
    with device:
        size = device.properties().width, device.properties().height
        while not stop.is_set():
            try:
                status, packet = next(device)
            except RuntimeError as error:
                raise UnreachableError(
                    f"the camera is gone ({reason(error)}): check its cable, and plug it in again"
                ) from error
            if status.ring is None or packet is None:
                continue
            newly_dropped = status.ring.dropped_packets - dropped
            yield Backlog(status.ring.backlog, newly_dropped)
            dropped += newly_dropped
            # Subscribers count lost packets by the gaps.
            seq += newly_dropped
            stamp_ns = now_ns()
            if isinstance(packet, bytes):
                data = event_packet(stamp_ns, packet, "evt3", size, seq)
                yield RecordedMessage(stamp_ns, "events", EVENT_PACKET, data)
                seq += 1
            else:
                for batch in _batches(packet.polarity_events, size):
                    yield mono_packet(batch, stamp_ns, seq)
                    seq += 1
                # A DVXplorer has no frames.
                for frame in getattr(packet, "frames", ()):
                    yield RecordedMessage(stamp_ns, "image", IMAGE, image(stamp_ns, frame.pixels, "mono16"))
            if not status.ring.backlog:
                stop.wait(_MIN_PACKET_S)


def _batches(events: np.ndarray | None, size: tuple[int, int]) -> Generator[EventBatch]:
    """Cut the events of a packet, fields t in us, x, y and on, into batches for a message each."""
    if events is None:
        return
    for start in range(0, len(events), MAX_EVENTS):
        t, x, y, on = (events[name][start : start + MAX_EVENTS] for name in ("t", "x", "y", "on"))
        yield EventBatch(t.astype(np.int64), x, y, on.astype(np.uint8), *size)
