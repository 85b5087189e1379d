"""Live iniVation cameras and dv network streams, through dv-processing."""

from __future__ import annotations

import math
import socket
import struct
import threading
import time
from collections.abc import Generator
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.camera_source import Clock, Item, Source, UnreachableError, Unusable, reason
from crossspec_ros.events.cdr import IMAGE, RecordedMessage, image
from crossspec_ros.events.packets import MAX_EVENTS, mono_packet

if TYPE_CHECKING:
    import dv_processing as dv

SOURCES = "camera, camera:SERIAL_NUMBER or tcp://HOST:PORT"
MAX_SILENCE_S = 5.0
"""A network stream that is silent for longer is connected again: its cable may have been pulled."""
CONNECT_S = 3.0
_IDLE_S = 0.001
_ENCODINGS = {1: "mono8", 3: "bgr8", 4: "bgra8"}


def open_sources(source: str, frames: str) -> list[Source]:
    """Return the sources that the parameters of a camera node name; `frames` may be empty.

    Raises InputError for a text that is not one of `SOURCES`, or frames that do not fit the source.
    """
    if source.startswith("tcp://"):
        served = {"events": source, **({"image": frames} if frames else {})}
        return [_stream(kind, text) for kind, text in served.items()]
    if frames:
        raise InputError(
            f"frames is '{frames}', which does not fit the source '{source}': leave it empty, only a network "
            f"stream has its frames at another address"
        )
    kind, _, serial = source.partition(":")
    if kind != "camera":
        raise InputError(f"source is '{source}', which is no camera or stream: give {SOURCES}")
    name = f"camera {serial}" if serial else "the camera"
    kinds = ("events", "image")
    return [Source(name, kinds, partial(_open_camera, serial), partial(_read, kinds, math.inf))]


def _stream(kind: str, text: str) -> Source:
    try:
        parts = urlsplit(text if "://" in text else f"tcp://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise InputError(f"'{text}' is no address of a dv stream: write it as tcp://HOST:PORT")
    name = f"tcp://{host}:{port}"
    connect, read = partial(_connect, name, host, port, kind), partial(_read, (kind,), MAX_SILENCE_S)
    return Source(name, (kind,), connect, read)


def _connect(name: str, host: str, port: int, kind: str) -> dv.io.NetworkReader:
    dv = _library()
    try:
        # dv-processing holds the interpreter's lock for as long as a server is silent, and resolves no names.
        with socket.create_connection((host, port), CONNECT_S) as probe:
            ip = probe.getpeername()[0]
            if not probe.recv(1):
                raise OSError("it closes the connection")
        reader = dv.io.NetworkReader(ip, port)
    except (OSError, RuntimeError, ValueError, LookupError, struct.error) as error:
        raise UnreachableError(
            f"{name} cannot be reached ({reason(error)}): start the camera's software there and let it "
            f"serve {kind}"
        ) from error
    if not (reader.isEventStreamAvailable() if kind == "events" else reader.isFrameStreamAvailable()):
        raise InputError(f"{name} serves no {kind}: give the port that does")
    return reader


def _open_camera(serial: str) -> dv.io.camera.CameraInputBase:
    dv = _library()
    try:
        return dv.io.camera.open(serial) if serial else dv.io.camera.open()
    # IndexError if none is attached. The texts of all these are of C++ and name no cause.
    except (IndexError, OSError, RuntimeError) as error:
        found = [descriptor.serialNumber for descriptor in dv.io.camera.discover()]
        raise UnreachableError(
            f"no iniVation camera{f' {serial}' if serial else ''} can be opened (attached: "
            f"{', '.join(found) or 'none'}): plug it in, end other programs that have it, and install "
            f"iniVation's udev rules"
        ) from error


def _library() -> ModuleType:
    try:
        import dv_processing
    except ImportError:
        raise InputError(
            "dv_camera needs dv_processing: run pip install dv-processing, or install libcaer_driver"
        ) from None
    return dv_processing


def _read(
    kinds: tuple[str, ...],
    max_silence_s: float,
    reader: dv.io.InputBase,
    stop: threading.Event,
    now_ns: Clock,
) -> Generator[Item]:
    """Yield messages and unusable frames until the connection ends, is silent for long or `stop` is set."""
    has_events = "events" in kinds
    has_frames = "image" in kinds and reader.isFrameStreamAvailable()
    size = reader.getEventResolution() if has_events else (0, 0)
    if size is None:
        raise InputError("the event stream does not state the size of its sensor: let its server do so")
    seq, heard_s = 0, time.monotonic()
    while not stop.is_set():
        is_running = reader.isRunning()
        batch = _take_events(reader, size) if has_events else None
        frame = reader.getNextFrame() if has_frames else None
        if batch:
            yield mono_packet(batch, now_ns(), seq)
            seq += 1
        if frame is not None:
            yield _frame_message(frame.image, now_ns())
        if batch or frame is not None:
            heard_s = time.monotonic()
        elif not is_running:
            return
        elif time.monotonic() - heard_s > max_silence_s:
            raise UnreachableError(f"no data came for {max_silence_s:g} s")
        else:
            time.sleep(_IDLE_S)


def _take_events(reader: dv.io.InputBase, size: tuple[int, int]) -> EventBatch | None:
    """Join the waiting batches up to about a packet: senders cut a stream into very small ones."""
    batches: list[EventBatch] = []
    while sum(map(len, batches)) < MAX_EVENTS and (store := reader.getNextEventBatch()) is not None:
        events = store.numpy()
        t, x, y, p = (events[name] for name in ("timestamp", "x", "y", "polarity"))
        batch = EventBatch(
            t.astype(np.int64), x.astype(np.uint16), y.astype(np.uint16), p.astype(np.uint8), *size
        )
        batches += [batch] if len(batch) else []
    return EventBatch.concat(batches) if batches else None


def _frame_message(pixels: np.ndarray, stamp_ns: int) -> RecordedMessage | Unusable:
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    if channels not in _ENCODINGS or pixels.dtype != np.uint8 or not pixels.size:
        return Unusable(f"a frame has {pixels.size} values of {pixels.dtype} in {channels} channels")
    return RecordedMessage(stamp_ns, "image", IMAGE, image(stamp_ns, pixels, _ENCODINGS[channels]))
