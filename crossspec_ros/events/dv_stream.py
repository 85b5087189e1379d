"""Live dv network streams, as the iniVation software and dv-processing's NetworkWriter serve them."""

from __future__ import annotations

import socket
import time
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.dv import IMAGE_TOPIC, batch_of_store, dv_message, frame_message
from crossspec_ros.events.isolated import IsolationError, isolated
from crossspec_ros.events.messages import RecordedMessage, image
from crossspec_ros.events.packets import PacketCutter

if TYPE_CHECKING:
    import dv_processing as dv

TIMEOUT_S = 10.0
_HEARTBEAT_S = 0.2
_IDLE_S = 0.001

Address = tuple[str, int]


class DvStream:
    """Events served at `tcp://HOST:PORT`, and frames served at another port where `frames` names it.

    Messages are those of an AedatRecording. Raises InputError for addresses that are none.
    """

    event_topic = "/event_camera/events"

    def __init__(self, events: str, frames: str | None = None) -> None:
        self._events, self._frames = _address(events), _address(frames) if frames else None
        self.image_topic = IMAGE_TOPIC if frames else None

    def __str__(self) -> str:
        return _name(self._events)

    def messages(self) -> Generator[RecordedMessage | None]:
        """Both streams as they come, until the events' server goes; None a few times a second, come what may.

        Raises InputError when a server cannot be reached or serves something else.
        """
        try:
            yield from isolated(_receive, self._events, self._frames, timeout_s=TIMEOUT_S)
        except IsolationError as error:
            raise InputError(
                f"no dv stream comes from {self} ({error}): check that address and port are those "
                f"of the camera's event stream"
            ) from error


def _receive(events_at: Address, frames_at: Address | None) -> Iterator[RecordedMessage | None]:
    # The first message of each type takes a second, and what comes meanwhile may be lost: dv-processing drops
    # what is still to be read when the server goes.
    nothing = np.zeros(1, np.uint8)
    list(PacketCutter("").cut(EventBatch(nothing.astype(np.int64), nothing, nothing, nothing, 1, 1)))
    image(0, nothing[None], "mono8")
    events = _connect(events_at, "events")
    frames = _connect(frames_at, "frames") if frames_at else None
    size, cutter = events.getEventResolution(), PacketCutter(_name(events_at))
    heartbeat_s = 0.0
    while True:
        is_over = not events.isRunning()
        store = events.getNextEventBatch()
        frame = frames.getNextFrame() if frames else None
        if store is not None:
            yield from cutter.cut(batch_of_store(store, size))
        if frame is not None:
            yield frame_message(frame)
        if store is None and frame is None:
            if is_over:
                return
            time.sleep(_IDLE_S)
        if time.monotonic() >= heartbeat_s:
            heartbeat_s = time.monotonic() + _HEARTBEAT_S
            yield None


def _connect(address: Address, what: str) -> dv.io.NetworkReader:
    import dv_processing as dv

    try:
        # dv-processing takes numbers only, no names.
        ip = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][4][0]
        reader = dv.io.NetworkReader(str(ip), address[1])
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"{_name(address)} cannot be reached ({dv_message(error)}): start the camera's software there "
            f"and let it serve {what}"
        ) from error
    if not (reader.isEventStreamAvailable() if what == "events" else reader.isFrameStreamAvailable()):
        raise InputError(f"{_name(address)} serves no {what}: give the port that does")
    return reader


def _address(text: str) -> Address:
    try:
        parts = urlsplit(text if "://" in text else f"tcp://{text}")
        if parts.scheme == "tcp" and parts.hostname and parts.port:
            return parts.hostname, parts.port
    except ValueError:
        pass
    raise InputError(f"'{text}' is no address of a dv stream: write it as tcp://HOST:PORT")


def _name(address: Address) -> str:
    return f"tcp://{address[0]}:{address[1]}"
