"""Bags of ROS 1 and ROS 2, and the messages in them."""

from __future__ import annotations

import struct

import cv2
import numpy as np
from backports import zstd
from crossspec_lab.evt3_encoder import encode_evt3
from crossspec_lab.samples.event_files import random_batch

from crossspec_ros.events.cdr import (
    COMPRESSED_IMAGE,
    EVENT_PACKET,
    IMAGE,
    RecordedMessage,
    compressed_image,
    event_packet,
    typestore,
)

MAGIC = b"\x89MCAP0\r\n"
SECOND = 1_000_000_000
STRING = "std_msgs/msg/String"


def text(value):
    return struct.pack("<I", len(value)) + value.encode()


def record(opcode, body):
    return struct.pack("<BQ", opcode, len(body)) + body


def packet(stamp, encoding="evt3", payload=b""):
    return RecordedMessage(stamp, "events", EVENT_PACKET, event_packet(stamp, payload, encoding, (320, 240)))


def picture(stamp):
    return RecordedMessage(stamp, "image", COMPRESSED_IMAGE, compressed_image(stamp, b"\xff\xd8", "jpeg"))


def readable_picture(stamp):
    data = cv2.imencode(".png", np.zeros((4, 4, 3), np.uint8))[1].tobytes()
    return RecordedMessage(stamp, "image", COMPRESSED_IMAGE, compressed_image(stamp, data, "png"))


def string(text="hello"):
    data = typestore().serialize_cdr(typestore().types[STRING](text), STRING)
    return RecordedMessage(7, "", STRING, bytes(data))


EVENTS, IMAGES = "/event_camera/events", "/camera/image_raw"
SIZE = (320, 240)
STEP_US = 10_000
BATCHES = [random_batch(200, i, i * STEP_US, STEP_US, *SIZE) for i in range(100)]


def nth(i: int, payload: bytes | None = None, encoding="evt3", size=SIZE, seq=None, stamp_us=None):
    """The i-th of `BATCHES` as a message on `EVENTS`: (topic, type, recorded_ns, data)."""
    payload = encode_evt3(BATCHES[i]) if payload is None else payload
    stamp_ns = (i * STEP_US if stamp_us is None else stamp_us) * 1000 + SECOND
    data = event_packet(stamp_ns, payload, encoding, size, i if seq is None else seq)
    return EVENTS, EVENT_PACKET, stamp_ns, data


def raw_image(stamp_ns: int, size=(32, 24), encoding="rgb8", pixels: int | None = None):
    types = typestore().types
    header = types["std_msgs/msg/Header"](
        types["builtin_interfaces/msg/Time"](stamp_ns // SECOND, stamp_ns % SECOND), "camera"
    )
    width, height = size
    data = np.zeros(width * height * 3 if pixels is None else pixels, np.uint8)
    message = types[IMAGE](header, height, width, encoding, 0, width * 3, data)
    return IMAGES, IMAGE, stamp_ns, bytes(typestore().serialize_cdr(message, IMAGE))


def images(*indices: int):
    return [raw_image(SECOND + i * SECOND // 20) for i in indices]


def in_order(messages):
    return sorted(messages, key=lambda message: message[2])


def sound():
    return in_order([nth(i) for i in range(100)] + images(*range(20)))


def by_topic(report) -> dict:
    return {topic["topic"]: topic for topic in report["topics"]}


def mcap(path, messages, profile="ros2", chunks=99, summary=True, statistics=True, indexes=False, **types):
    """An mcap of (topic, type, recorded_ns, data), 30 a chunk in so many chunks, the rest beside them.

    `types` may say of one by its last word (encoding of its messages, schema's encoding, definition, md5).
    """
    ids, describing = {}, {}
    for topic, kind, *_ in messages:
        if topic not in ids:
            number = ids[topic] = len(ids) + 1
            encoding, schema, definition, md5 = types.get(kind.split("/")[-1], ("cdr", "ros2msg", "", ""))
            told = text("md5sum") + text(md5) if md5 else b""
            describing[topic] = record(
                3, struct.pack("<H", number) + text(kind) + text(schema) + text(definition)
            ) + record(
                4,
                struct.pack("<HH", number, number)
                + text(topic)
                + text(encoding)
                + struct.pack("<I", len(told))
                + told,
            )
    out = bytearray(MAGIC + record(1, text(profile) + text("x")))
    index, counts, described = b"", dict.fromkeys(ids, 0), set()
    for first in range(0, len(messages), 30):
        part, data, places = messages[first : first + 30], b"", {}
        for topic, _, recorded_ns, body in part:
            if topic not in described:
                data += describing[topic]
                described.add(topic)
            places.setdefault(topic, []).append((recorded_ns, len(data)))
            data += record(5, struct.pack("<HIQQ", ids[topic], 0, recorded_ns, recorded_ns) + body)
            counts[topic] += 1
        if first >= 30 * chunks:
            out += data
            continue
        times = [message[2] for message in part]
        packed = zstd.compress(data)
        head = struct.pack("<QQQI", min(times), max(times), len(data), 0)
        chunk = record(6, head + text("zstd") + struct.pack("<Q", len(packed)) + packed)
        at, offsets, indexing = len(out), b"", b""
        for topic, found in places.items() if indexes else ():
            offsets += struct.pack("<HQ", ids[topic], at + len(chunk) + len(indexing))
            pairs = b"".join(struct.pack("<QQ", *pair) for pair in found)
            indexing += record(7, struct.pack("<HI", ids[topic], len(pairs)) + pairs)
        out += chunk + indexing
        index += record(
            8,
            struct.pack("<QQQQI", min(times), max(times), at, len(chunk), len(offsets))
            + offsets
            + struct.pack("<Q", len(indexing))
            + text("zstd")
            + struct.pack("<QQ", len(packed), len(data)),
        )
    out += record(15, bytes(4))
    start = len(out) if summary else 0
    if summary:
        out += b"".join(describing.values()) + index
        numbers = b"".join(struct.pack("<HQ", ids[topic], count) for topic, count in counts.items())
        if statistics:
            times = [message[2] for message in messages]
            told = struct.pack("<QHIIII", len(messages), len(ids), len(ids), 0, 0, 1)
            told += struct.pack("<QQI", min(times), max(times), len(numbers)) + numbers
            out += record(11, told)
    out += record(2, struct.pack("<QQI", start, 0, 0)) + MAGIC
    path.write_bytes(out)
    return path
