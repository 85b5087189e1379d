"""Bags of ROS 1 and ROS 2, and the messages in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from rosbags.rosbag1 import Writer as Writer1
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin
from rosbags.rosbag2 import Writer as Writer2
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from crossspec_lab.evt3_encoder import encode_evt3
from crossspec_lab.samples.event_files import bgr, random_batch
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import (
    COMPRESSED_IMAGE,
    DVS_EVENTS,
    EVENT_PACKET,
    IMAGE,
    RecordedMessage,
    compressed_image,
    event_packet,
    image,
    typestore,
)
from crossspec_ros.events.dvs import encode_dvs
from crossspec_ros.recordings.bag import write_bag

Message = tuple[str, str, int, bytes]
"""(topic, type, time of its recording in ns, CDR)."""
ROS1_START_NS = 1_500_000_000_123_456_000
ROS1_SIZE = (346, 260)
_ROS1_EVENT = "uint16 x\nuint16 y\ntime ts\nbool polarity"
ROS1_EVENT_PACKET = """Header header
uint32 height
uint32 width
uint64 seq
uint64 time_base
string encoding
bool is_bigendian
uint8[] events"""
"""`event_camera_msgs/EventPacket` as ROS 1 defines it."""


@cache
def ros1_types() -> Any:
    """Return the types of ROS 1, those of events as their packages define them."""
    store = get_typestore(Stores.ROS1_NOETIC)
    for package in ("dvs_msgs", "prophesee_event_msgs"):
        store.register(get_types_from_msg(_ROS1_EVENT, f"{package}/msg/Event"))
        array = f"Header header\nuint32 height\nuint32 width\n{package}/Event[] events"
        store.register(get_types_from_msg(array, f"{package}/msg/EventArray"))
    store.register(get_types_from_msg(ROS1_EVENT_PACKET, EVENT_PACKET))
    return store


def ros1_batch(i: int) -> EventBatch:
    """Return the events of the i-th packet of `drive`."""
    return random_batch(300, i, ROS1_START_NS // 1000 + i * 20_000, 20_000, *ROS1_SIZE)


def encoded_picture(i: int, suffix: str) -> bytes:
    """Return the i-th picture of a colour camera as an image file."""
    return bytes(cv2.imencode(suffix, bgr(i % 5))[1])


def drive() -> Iterator[tuple[str, RecordedMessage]]:
    """Yield a second of two event cameras and two cameras, as (topic, message with its CDR)."""
    rng = np.random.default_rng(0)
    for i in range(50):
        stamp = ROS1_START_NS + i * 20_000_000
        yield "/dvs/events", RecordedMessage(stamp, "events", DVS_EVENTS, encode_dvs(ros1_batch(i), stamp))
        packet = event_packet(stamp, encode_evt3(ros1_batch(i)), "evt3", ROS1_SIZE, i)
        yield "/event_camera/events", RecordedMessage(stamp, "events", EVENT_PACKET, packet)
        if i % 2:
            pixels = rng.integers(0, 256, (9, 16, 3), np.uint8)
            yield "/cam/image_raw", RecordedMessage(stamp, "image", IMAGE, image(stamp, pixels, "bgr8"))
        jpeg = compressed_image(stamp, encoded_picture(i, ".jpg"), "jpeg")
        yield "/cam/compressed", RecordedMessage(stamp, "image", COMPRESSED_IMAGE, jpeg)


def bag_of(path: Path, *messages: tuple[str, RecordedMessage]) -> Path:
    """Write a bag as `crossspec convert` does."""
    with write_bag(path) as write:
        for topic, message in messages:
            write(topic, message)
    return path


def write_ros2(
    path: Path,
    messages: Iterable[Message],
    storage: StoragePlugin = StoragePlugin.MCAP,
    compression: CompressionMode | None = None,
) -> Path:
    """Write a bag of the messages in this order, which becomes that of their recording."""
    writer = Writer2(path, version=8, storage_plugin=storage)
    if compression:
        writer.set_compression(compression, CompressionFormat.ZSTD)
    connections: dict[str, Any] = {}
    latest_ns = 0
    with writer:
        for topic, kind, recorded_ns, data in messages:
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, kind, typestore=typestore())
            latest_ns = max(latest_ns, recorded_ns)
            writer.write(connections[topic], latest_ns, data)
    return path


def write_ros1(
    path: Path,
    messages: Iterable[tuple[str, RecordedMessage]],
    compression: Writer1.CompressionFormat | None = None,
    types: Mapping[str, str] | None = None,
    chunk: int = 20_000,
) -> Path:
    """Write a ROS 1 bag of the messages; `types` has other names of their types."""
    writer, connections = Writer1(path), dict[str, Any]()
    writer.chunk_threshold = chunk
    if compression:
        writer.set_compression(compression)
    with writer:
        for topic, message in messages:
            if topic not in connections:
                name = (types or {}).get(message.type, message.type)
                connections[topic] = writer.add_connection(topic, name, typestore=ros1_types())
            raw = typestore().cdr_to_ros1(message.data, message.type)
            writer.write(connections[topic], message.stamp_ns, bytes(raw))
    return path
