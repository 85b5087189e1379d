"""ROS messages as CDR bytes, made and read without ROS."""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import is_sensor
from crossspec_ros.paths import share_dir

if TYPE_CHECKING:
    from rosbags.typesys.store import Typestore

EVENT_PACKET = "event_camera_msgs/msg/EventPacket"
# What EventPacket was called until 2023; the fields are the same.
LEGACY_EVENT_PACKET = "event_array_msgs/msg/EventArray"
DVS_EVENTS = "dvs_msgs/msg/EventArray"
EVENT_TYPES = {
    EVENT_PACKET: EVENT_PACKET,
    LEGACY_EVENT_PACKET: EVENT_PACKET,
    DVS_EVENTS: DVS_EVENTS,
    "prophesee_event_msgs/msg/EventArray": DVS_EVENTS,
    "dv_ros_msgs/msg/EventArray": DVS_EVENTS,
    "dv_ros2_msgs/msg/EventArray": DVS_EVENTS,
}
"""All types of events that recordings have, and the type with the same fields that each is read as."""
IMAGE = "sensor_msgs/msg/Image"
COMPRESSED_IMAGE = "sensor_msgs/msg/CompressedImage"
IMAGE_TYPES = (IMAGE, COMPRESSED_IMAGE)
ENCODINGS = ("evt3", "libcaer", "libcaer_cmp", "mono")
"""Encodings of an EventPacket."""

_SIZED = "std_msgs/Header header\nuint32 height\nuint32 width\n"
_DEFINITIONS = {
    EVENT_PACKET: _SIZED + "uint64 seq\nuint64 time_base\nstring encoding\nbool is_bigendian\nuint8[] events",
    "dvs_msgs/msg/Event": "uint16 x\nuint16 y\nbuiltin_interfaces/Time ts\nbool polarity",
    DVS_EVENTS: _SIZED + "dvs_msgs/Event[] events",
}


class RecordedMessage(NamedTuple):
    """A message ready for `publish(bytes)`."""

    stamp_ns: int
    """`header.stamp`, ROS time."""
    kind: str
    """"events" or "image" in a recording, "caption" in a bag of captions."""
    type: str
    """As in `event_camera_msgs/msg/EventPacket`."""
    data: bytes
    """CDR with its encapsulation header."""
    stray: bool = False
    """The stamp lies far from those around it (events/stamps.py)."""


@cache
def typestore() -> Typestore:
    """Return the message types of ROS 2 Kilted, of the event cameras and of crossspec_msgs."""
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    store = get_typestore(Stores.ROS2_KILTED)
    files = (share_dir() / "interfaces" / "crossspec_msgs" / "msg").glob("*.msg")
    definitions = {f"crossspec_msgs/msg/{file.stem}": file.read_text() for file in files}
    for name, definition in (_DEFINITIONS | definitions).items():
        store.register(get_types_from_msg(definition, name))
    return store


def stamp_ns(cdr: bytes | memoryview) -> int:
    """`header.stamp` in ns of a serialized message with a header; raises InputError when it is torn."""
    # Byte 1 of the encapsulation header is the byte order.
    try:
        sec, nanosec = struct.unpack_from("<iI" if cdr[1:2] == b"\x01" else ">iI", cdr, 4)
    except struct.error:
        raise InputError("a message is shorter than its header: check the node that sends it") from None
    return int(sec) * 1_000_000_000 + int(nanosec)


def to_ns(stamp: Any) -> int:
    """Return a `builtin_interfaces/Time` of rclpy or of rosbags in nanoseconds."""
    return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)


def is_end_mark(packet: Any) -> bool:
    """Return whether an EventPacket is a player's mark that the stream has reached its stamp."""
    return not packet.width and not len(packet.events)


def end_mark(stamp_ns: int) -> bytes:
    """Return the EventPacket by which a player shows that the stream has reached this stamp."""
    return event_packet(stamp_ns, b"", "mono", (0, 0))


@cache
def _end_mark_body() -> bytes:
    return end_mark(0)[12:]


def is_recorded_end_mark(data: bytes) -> bool:
    """Return whether a serialized EventPacket is a recorded `end_mark` of a player."""
    body = _end_mark_body()
    return len(data) == 12 + len(body) and data.endswith(body)


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


def event_packet(
    stamp_ns: int, payload: bytes, encoding: str, size: tuple[int, int], seq: int = 0, time_base: int = 0
) -> bytes:
    """Return a serialized EventPacket; `size` is (width, height)."""
    width, height = size
    return _serialize(
        EVENT_PACKET,
        header=_header(stamp_ns, "event_camera"),
        height=height,
        width=width,
        seq=seq,
        time_base=time_base,
        encoding=encoding,
        is_bigendian=False,
        events=np.frombuffer(payload, np.uint8),
    )


def compressed_image(stamp_ns: int, data: bytes, format: str) -> bytes:
    """Return a serialized CompressedImage of an encoded picture; `format` is "png" or "jpeg"."""
    pixels = np.frombuffer(data, np.uint8)
    return _serialize(COMPRESSED_IMAGE, header=_header(stamp_ns, "camera"), format=format, data=pixels)


def image(stamp_ns: int, pixels: np.ndarray, encoding: str) -> bytes:
    """Return a serialized Image of (H, W) or (H, W, channels) uint8 or uint16; `encoding` as in "bgr8"."""
    height, width = pixels.shape[:2]
    return _serialize(
        IMAGE,
        header=_header(stamp_ns, "camera"),
        height=height,
        width=width,
        encoding=encoding,
        is_bigendian=0,
        step=pixels.nbytes // height,
        data=pixels.reshape(-1).view(np.uint8),
    )


def _header(stamp_ns: int, frame_id: str) -> Any:
    types = typestore().types
    sec, nanosec = divmod(stamp_ns, 1_000_000_000)
    return types["std_msgs/msg/Header"](types["builtin_interfaces/msg/Time"](sec, nanosec), frame_id)


def _serialize(type_name: str, **fields: Any) -> bytes:
    return serialized(typestore().types[type_name](**fields))


def serialized(message: Any) -> bytes:
    """Return a message of the types of `typestore` as CDR."""
    return bytes(typestore().serialize_cdr(message, message.__msgtype__))


def new_message(type_name: str, **values: Any) -> Any:
    """Return a message of the types of `typestore` with these fields, and zero in the others."""
    store = typestore()
    _, fields = store.fielddefs[type_name]
    return store.types[type_name](**{name: _field(kind, values.get(name)) for name, kind in fields})


def _field(kind: Any, value: Any) -> Any:
    """Return a field as rosbags serializes it, or its zero for None."""
    from rosbags.interfaces import Nodetype

    node, inner = kind
    if node == Nodetype.BASE:
        return {"string": "", "bool": False}.get(inner[0], 0) if value is None else value
    if node == Nodetype.NAME:
        return new_message(inner) if value is None else value
    element, name = inner[0]
    is_number = element == Nodetype.BASE and name[0] != "string"
    return np.array(value or [], name[0]) if is_number else value or []
