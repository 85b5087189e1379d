"""Bags of ROS 1 and ROS 2, and the messages in them."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
from crossspec_lab.evt3_encoder import encode_evt3
from crossspec_lab.samples.event_files import random_batch
from mcap.writer import IndexType, Writer

from crossspec_ros.events.cdr import (
    COMPRESSED_IMAGE,
    EVENT_PACKET,
    IMAGE,
    RecordedMessage,
    compressed_image,
    event_packet,
    image,
    typestore,
)

SECOND = 1_000_000_000
STRING = "std_msgs/msg/String"
EVENTS, IMAGES = "/event_camera/events", "/camera/image_raw"
SIZE = (320, 240)
STEP_US = 10_000
BATCHES = [random_batch(200, i, i * STEP_US, STEP_US, *SIZE) for i in range(100)]
PNG = cv2.imencode(".png", np.zeros((24, 32, 3), np.uint8))[1].tobytes()
_CHUNK_BYTES = 40_000


def packet(stamp, encoding="evt3", payload=b""):
    return RecordedMessage(stamp, "events", EVENT_PACKET, event_packet(stamp, payload, encoding, SIZE))


def picture(stamp, data=b"\xff\xd8"):
    return RecordedMessage(stamp, "image", COMPRESSED_IMAGE, compressed_image(stamp, data, "jpeg"))


def string(text="hello"):
    data = typestore().serialize_cdr(typestore().types[STRING](text), STRING)
    return RecordedMessage(7, "", STRING, bytes(data))


def chatter(recorded_ns: int):
    return "/chatter", STRING, recorded_ns, string().data


def nth(i: int, payload: bytes | None = None, encoding="evt3", size=SIZE, seq=None, stamp_us=None):
    """Return the i-th of `BATCHES` as a message on `EVENTS`: (topic, type, recorded_ns, data)."""
    payload = encode_evt3(BATCHES[i]) if payload is None else payload
    stamp_ns = (i * STEP_US if stamp_us is None else stamp_us) * 1000 + SECOND
    data = event_packet(stamp_ns, payload, encoding, size, i if seq is None else seq)
    return EVENTS, EVENT_PACKET, stamp_ns, data


def raw_image(stamp_ns: int, size=(32, 24), encoding="rgb8"):
    return IMAGES, IMAGE, stamp_ns, image(stamp_ns, np.zeros((*size[::-1], 3), np.uint8), encoding)


def edited(message, **fields):
    """Return the message with other values of these fields."""
    topic, kind, stamp_ns, data = message
    changed = replace(typestore().deserialize_cdr(data, kind), **fields)
    return topic, kind, stamp_ns, bytes(typestore().serialize_cdr(changed, kind))


def images(*indices: int):
    return [raw_image(SECOND + i * SECOND // 20) for i in indices]


def in_order(messages):
    return sorted(messages, key=lambda message: message[2])


def drive_messages():
    return in_order([nth(i) for i in range(100)] + images(*range(20)))


def by_topic(report) -> dict:
    return {topic["topic"]: topic for topic in report["topics"]}


def mcap(path, messages, profile="ros2", chunks=True, summary=True, statistics=True, indexes=False, **types):
    """Write an mcap of (topic, type, recorded_ns, data), in chunks or not, without the parts that are False.

    `types` has the encoding of its messages, of its schema, and its definition by the last word of a type.
    """
    kinds = IndexType.CHUNK if summary else IndexType.NONE
    kinds |= IndexType.MESSAGE if indexes else IndexType.NONE
    parts = dict.fromkeys(("repeat_channels", "repeat_schemas", "use_summary_offsets"), summary)
    with path.open("wb") as file:
        writer = Writer(
            file, _CHUNK_BYTES, index_types=kinds, use_chunking=chunks,
            use_statistics=summary and statistics, **parts,
        )  # fmt: skip
        writer.start(profile)
        channels = {}
        for topic, kind, recorded_ns, data in messages:
            if topic not in channels:
                encoding, schema, definition = types.get(kind.split("/")[-1], ("cdr", "ros2msg", ""))
                number = writer.register_schema(kind, schema, definition.encode())
                channels[topic] = writer.register_channel(topic, encoding, number)
            writer.add_message(channels[topic], recorded_ns, data, recorded_ns)
        writer.finish()
    return path
