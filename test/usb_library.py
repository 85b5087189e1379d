"""A stand-in for neuromorphic_drivers 0.18, with cameras that yield packets of its types."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np

EVENTS = np.dtype([("t", "<u8"), ("x", "<u2"), ("y", "<u2"), ("on", "?")])
SIZES = {
    "prophesee_evk4": (1280, 720),
    "prophesee_evk3_hd": (1280, 720),
    "inivation_dvxplorer": (640, 480),
    "inivation_davis346": (346, 260),
}
DENIED = "Access denied (insufficient permissions)"
UNPLUGGED = "PropheseeEvk4(Usb(Rusb(NoDevice)))"


@dataclass
class RawRingStatus:
    system_time: float
    backlog: int
    raw_packets: int
    clutch_engaged: bool
    overflow_indices: list[int] | None
    dropped_packets: int


@dataclass
class RingStatus:
    system_time: float
    backlog: int
    raw_packets: int
    clutch_engaged: bool
    current_t: int
    dropped_packets: int


@dataclass
class Status:
    system_time: float
    ring: RawRingStatus | RingStatus | None


@dataclass
class Frame:
    start_t: int
    exposure_start_t: int | None
    exposure_end_t: int | None
    t: int
    pixels: np.ndarray


@dataclass
class DvxplorerPacket:
    polarity_events: np.ndarray | None = None
    imu_events: np.ndarray | None = None
    trigger_events: np.ndarray | None = None
    polarity_events_overflow_indices: np.ndarray | None = None
    imu_events_overflow_indices: np.ndarray | None = None
    trigger_events_overflow_indices: np.ndarray | None = None


@dataclass
class Davis346Packet(DvxplorerPacket):
    frames: list[Frame] = field(default_factory=list)
    frames_overflow_indices: np.ndarray | None = None


def structured(batch):
    """Return the events of a batch as the library does."""
    events = np.empty(len(batch), EVENTS)
    for name, values in zip(EVENTS.names, (batch.t, batch.x, batch.y, batch.p), strict=True):
        events[name] = values
    return events


def frame(pixels):
    """Return a frame of these pixels (260, 346) uint16."""
    return Frame(0, 1, 2, 3, pixels)


@dataclass
class Camera:
    """An attached camera; `packets` come one a read, and a text is an error, after which it is unplugged."""

    kind: str
    packets: list
    serial: str = "ABC"
    is_denied: bool = False
    dropped: int = 0
    """Transfers that are dropped before each packet."""


class Library:
    """Stands for the module."""

    def __init__(self, *cameras):
        self.attached = list(cameras)
        self.opened = 0
        for kind in SIZES:
            setattr(self, kind, SimpleNamespace(Configuration=_configuration(kind)))

    def open(
        self,
        configuration=None,
        iterator_timeout=None,
        raw=False,
        serial=None,
        address=None,
        ring_configuration=None,
        iterator_maximum_raw_packets=64,
    ):
        assert configuration is not None and address is None and ring_configuration is None
        for camera in (one for one in self.attached if one.kind == configuration.type()):
            if camera.is_denied:
                raise RuntimeError(DENIED)
            if serial in (None, camera.serial):
                assert self.opened == 0, "the camera is open"
                return Device(self, camera, raw, iterator_timeout)
        kind = configuration.type()
        raise RuntimeError(f'{kind} with serial "{serial}" not found' if serial else f"no {kind} found")


def _configuration(kind):
    class Configuration:
        @staticmethod
        def type():
            return kind

    return Configuration


class Device:
    """An open camera."""

    def __init__(self, library, camera, raw, timeout_s):
        library.opened += 1
        self._library, self._camera, self._raw, self._timeout_s = library, camera, raw, timeout_s
        self._dropped = 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._library.opened -= 1

    def properties(self):
        width, height = SIZES[self._camera.kind]
        return SimpleNamespace(width=width, height=height)

    def __next__(self):
        if not self._camera.packets:
            time.sleep(self._timeout_s)
            return Status(time.time(), None), None
        packet = self._camera.packets.pop(0)
        if isinstance(packet, str):
            self._library.attached.remove(self._camera)
            raise RuntimeError(packet)
        assert isinstance(packet, bytes) == self._raw
        self._dropped += self._camera.dropped
        ring = (
            RawRingStatus(time.time(), len(self._camera.packets), 1, False, [], self._dropped)
            if self._raw
            else RingStatus(time.time(), len(self._camera.packets), 1, False, 0, self._dropped)
        )
        return Status(time.time(), ring), packet
