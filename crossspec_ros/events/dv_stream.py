"""Live dv network streams, as the iniVation software and dv-processing's NetworkWriter serve them."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import RecordedMessage, image
from crossspec_ros.events.dv import IMAGE_TOPIC, batch_of_store, dv_message, frame_message
from crossspec_ros.events.packets import MAX_EVENTS, PacketCutter
from crossspec_ros.events.sandbox import LIVE, Sandbox, SandboxError, checked
from crossspec_ros.events.sandbox_child import Sent, renew_time
from crossspec_ros.events.sandbox_frames import Word

if TYPE_CHECKING:
    import dv_processing as dv

_HEARTBEAT_S = 0.2
_IDLE_S = 0.001

Address = tuple[str, int]


class UnreachableError(InputError):
    """Nobody answers at an address, now."""


class SilenceError(RuntimeError):
    """A connected stream says nothing any more."""


class Unusable(NamedTuple):
    """Stands for something that came and cannot be a message, and says why."""

    why: str

    def word(self) -> Word:
        """This as a child sends it."""
        return {"unusable": self.why}

    @classmethod
    def of(cls, word: Word) -> Unusable | None:
        """Refusal that a child has sent, None where it is something else."""
        return cls(checked(word, "unusable", (str,))) if "unusable" in word else None


class DvStream:
    """Events served at `tcp://HOST:PORT`, and frames served at another port where `frames` names it.

    Messages are those of an AedatRecording. Raises InputError for addresses that are none.
    """

    event_topic = "/event_camera/events"

    def __init__(self, events: str, frames: str | None = None) -> None:
        self._events, self._frames = parse_address(events), parse_address(frames) if frames else None
        self.image_topic = IMAGE_TOPIC if frames else None

    def __str__(self) -> str:
        return name_of(self._events)

    def messages(self) -> Generator[RecordedMessage | None]:
        """Both streams as they come, until the events' server goes; None a few times a second, come what may.

        Raises InputError when a server cannot be reached or serves something else.
        """
        arguments = [self._events, self._frames]
        try:
            with closing(Sandbox("crossspec_ros.events.dv_stream:receive", arguments, LIVE)) as child:
                for item in child.items():
                    if isinstance(item, RecordedMessage):
                        yield item
                    elif unusable := Unusable.of(item):
                        raise InputError(
                            f"{self} sends what cannot be used ({unusable.why}): check its server"
                        )
                    else:
                        yield None
        except SandboxError as error:
            raise InputError(
                f"no dv stream comes from {self} (its reader {error}): check that address and port are those "
                f"of the camera's event stream"
            ) from error


def read(
    events: dv.io.InputBase | None,
    frames: dv.io.InputBase | None,
    cutter: PacketCutter,
    silence_s: float = math.inf,
) -> Iterator[RecordedMessage | Unusable | None]:
    """Yield what the readers give until the first of them ends; None a few times a second, come what may.

    Raises SilenceError when nothing comes for `silence_s`, InputError for a sensor of unknown size.
    """
    first = events or frames
    assert first is not None
    size = events.getEventResolution() if events else (0, 0)
    if size is None:
        raise InputError("the event stream does not say how large its sensor is: let its server do so")
    heartbeat_s, heard_s = 0.0, time.monotonic()
    while True:
        is_over = not first.isRunning()
        batches = _take(events, size) if events else []
        frame = frames.getNextFrame() if frames else None
        if batches:
            yield from _usable(cutter.cut(EventBatch.concat(batches)))
        if frame is not None:
            yield from _usable(map(frame_message, [frame]))
        now_s = time.monotonic()
        if batches or frame is not None:
            heard_s = now_s
        elif is_over:
            return
        elif now_s - heard_s > silence_s:
            raise SilenceError(f"nothing came for {silence_s:g} s")
        else:
            time.sleep(_IDLE_S)
        if now_s >= heartbeat_s:
            heartbeat_s = now_s + _HEARTBEAT_S
            yield None


def _usable(messages: Iterator[RecordedMessage]) -> Iterator[RecordedMessage | Unusable]:
    try:
        yield from messages
    except ValueError as error:
        yield Unusable(str(error))


def _take(events: dv.io.InputBase, size: tuple[int, int]) -> list[EventBatch]:
    """Take what has come, up to about a packet: senders cut a stream into far more pieces than need be."""
    batches: list[EventBatch] = []
    count = 0
    while count < MAX_EVENTS and (store := events.getNextEventBatch()) is not None:
        batches.append(batch_of_store(store, size))
        count += len(batches[-1])
    return batches


def warm_up() -> None:
    """Make a message of each type, which takes a second the first time.

    What comes meanwhile may be lost: dv-processing drops what is still to be read when the server goes.
    """
    nothing = np.zeros(1, np.uint8)
    list(PacketCutter("").cut(EventBatch(nothing.astype(np.int64), nothing, nothing, nothing, 1, 1)))
    image(0, nothing[None], "mono8")


def connect(address: Address, what: str) -> dv.io.NetworkReader:
    """A reader of the stream of `what`, "events" or "frames", that is served there.

    Raises UnreachableError when nobody answers and InputError when something else is served.
    """
    import dv_processing as dv

    try:
        # dv-processing takes numbers only, no names.
        ip = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][4][0]
        reader = dv.io.NetworkReader(str(ip), address[1])
    except (OSError, RuntimeError) as error:
        raise UnreachableError(
            f"{name_of(address)} cannot be reached ({dv_message(error)}): start the camera's software there "
            f"and let it serve {what}"
        ) from error
    # As C++ finds them in a stream's description.
    except (ValueError, LookupError) as error:
        raise InputError(
            f"{name_of(address)} describes its stream in no way that can be read ({error}): check its server"
        ) from error
    if not (reader.isEventStreamAvailable() if what == "events" else reader.isFrameStreamAvailable()):
        raise InputError(f"{name_of(address)} serves no {what}: give the port that does")
    return reader


def parse_address(text: str) -> Address:
    """Host and port of `tcp://HOST:PORT` or `HOST:PORT`; raises InputError where it is neither."""
    try:
        parts = urlsplit(text if "://" in text else f"tcp://{text}")
        if parts.scheme == "tcp" and parts.hostname and parts.port:
            return parts.hostname, parts.port
    except ValueError:
        pass
    raise InputError(f"'{text}' is no address of a dv stream: write it as tcp://HOST:PORT")


def name_of(address: Address) -> str:
    """As in `tcp://HOST:PORT`."""
    return f"tcp://{address[0]}:{address[1]}"


def receive(events_at: list[Any], frames_at: list[Any] | None) -> Iterator[Sent]:
    """Messages of a stream, sent by a child to `DvStream.messages`."""
    warm_up()
    events = connect(_address(events_at), "events")
    frames = connect(_address(frames_at), "frames") if frames_at else None
    return sent(read(events, frames, PacketCutter(name_of(_address(events_at)))))


def sent(items: Iterator[RecordedMessage | Unusable | None]) -> Iterator[Sent]:
    """Frames that a child sends for these items; processor time is bounded from one to the next."""
    for item in items:
        renew_time()
        yield item.word() if isinstance(item, Unusable) else {} if item is None else item


def _address(told: list[Any]) -> Address:
    """An address that came as JSON."""
    host, port = told
    return host, port
