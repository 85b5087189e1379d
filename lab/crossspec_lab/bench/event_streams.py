"""Event streams as drivers send them: synthetic ones of any rate in every encoding, and recorded ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from crossspec_lab.evt3_encoder import encode_evt3
from crossspec_lab.world.libcaer_cmp_encoder import encode_libcaer_cmp
from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import DVS_EVENTS, EVENT_PACKET, typestore
from crossspec_ros.events.dvs import encode_dvs
from crossspec_ros.events.fixed import encode_mono
from crossspec_ros.recordings.recording import open_recording

WIDTH, HEIGHT = 640, 480
PACKET_US = 1000
"""Length of a packet of the drivers by default."""
EPOCH_US = 1_700_000_000_000_000
SECOND_HALF_US = 500_000
"""Start of short streams in a window, so that slices end within them."""


@dataclass(frozen=True)
class Packet:
    """Payload of one message, as a decoder gets it."""

    payload: bytes
    time_base: int
    stamp_ns: int


@dataclass(frozen=True)
class Stream:
    """One sensor's packets in one encoding; payloads of `dvs` are complete messages."""

    name: str
    encoding: str
    width: int
    height: int
    packets: list[Packet]


def encode_libcaer(batch: EventBatch, time_base: int) -> bytes:
    """Encode a batch; its 31-bit times in us count from `time_base` in ns (events/fixed.py)."""
    words = np.empty(len(batch), [("data", "<u4"), ("us", "<i4")])
    x, y, p = (values.astype(np.uint32) for values in (batch.x, batch.y, batch.p))
    words["data"], words["us"] = x << 17 | y << 2 | p << 1 | 1, (batch.t - time_base // 1000) % (1 << 31)
    return words.tobytes()


ENCODERS: dict[str, Callable[[EventBatch, int], bytes]] = {
    "evt3": lambda batch, time_base: encode_evt3(batch),
    "libcaer": encode_libcaer,
    "libcaer_cmp": encode_libcaer_cmp,
    "mono": encode_mono,
    "dvs": encode_dvs,
}
"""Encoders by encoding; the second argument is the time base in ns, for `dvs` the message's stamp."""


def synthetic(encoding: str, rate: float, seconds: float, seed: int = 0) -> Stream:
    """Return a stream of `rate` million events per second.

    Half of the events lie alone, half in runs of eight neighbours that a moving edge sets off together; a run
    lies along that side of the sensor which the encoding's vector words are for.
    """
    packets = [
        Packet(ENCODERS[encoding](batch, int(start_us) * 1000), int(start_us) * 1000, int(start_us) * 1000)
        for start_us, batch in batches(rate, seconds, seed, along_rows=encoding != "libcaer_cmp")
    ]
    return Stream(f"{rate:g} Mev/s", encoding, WIDTH, HEIGHT, packets)


def batches(
    rate: float,
    seconds: float,
    seed: int = 0,
    along_rows: bool = True,
    since_us: int = EPOCH_US + SECOND_HALF_US,
) -> Iterator[tuple[int, EventBatch]]:
    """(start in us, batch) of each packet of such a stream."""
    rng = np.random.default_rng(seed)
    events = round(rate * PACKET_US)
    runs = events // 16
    edges = since_us + np.arange(0, round(seconds * 1e6) + 1, PACKET_US)
    for start_us, end_us in pairwise(edges.tolist()):
        t = np.sort(rng.integers(start_us, end_us, runs + events - 8 * runs))
        lengths = np.ones(len(t), np.int64)
        lengths[rng.permutation(len(t))[:runs]] = 8
        step = np.arange(events) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        major, minor = (WIDTH, HEIGHT) if along_rows else (HEIGHT, WIDTH)
        along = np.repeat(rng.integers(0, major - 8, len(t)), lengths) + step
        across = np.repeat(rng.integers(0, minor, len(t)), lengths)
        x, y = (along, across) if along_rows else (across, along)
        p = np.repeat(rng.integers(0, 2, len(t)), lengths)
        yield (
            start_us,
            EventBatch(
                np.repeat(t, lengths),
                x.astype(np.uint16),
                y.astype(np.uint16),
                p.astype(np.uint8),
                WIDTH,
                HEIGHT,
            ),
        )


def recorded(path: Path) -> Stream:
    """Return the event stream of a recording; raises InputError when it cannot be opened."""
    recording = open_recording(path)
    try:
        messages = [message for message in recording.messages() if message.kind == "events"]
    finally:
        recording.close()
    name = path.resolve().name
    if recording.event_type == DVS_EVENTS:
        sent = [Packet(message.data, 0, message.stamp_ns) for message in messages]
        return Stream(name, "dvs", 0, 0, sent)
    packets: list[Any] = [typestore().deserialize_cdr(m.data, EVENT_PACKET) for m in messages]
    kinds = {(packet.encoding, packet.width, packet.height) for packet in packets}
    if len(kinds) != 1:
        raise InputError(f"'{path}' has {len(kinds)} kinds of event packets: give a recording of one sensor")
    sent = [
        Packet(packet.events.tobytes(), packet.time_base, message.stamp_ns)
        for packet, message in zip(packets, messages, strict=True)
    ]
    return Stream(name, *kinds.pop(), sent)
