"""`dvs_msgs/msg/EventArray`: events as a list of structs, read from and written to the serialized message.

As Python objects a thousand events take a millisecond, so a node subscribes to the raw bytes.
"""

from __future__ import annotations

import struct
from collections import Counter
from typing import Literal

import numpy as np

from crossspec_ros.events.batch import EventBatch, drop_outside, is_sensor

# A struct takes 13 bytes (x, y, sec, nsec, polarity); aligning the next one's x to 2 and its sec to 4 makes
# them repeat every 16 bytes, but for the first x and y, which have no gap behind them:
#   x y sec nsec p.x y..sec nsec p.x y..sec ...
# So row i of 16 bytes holds y, sec, nsec and p of event i and x of event i+1; the first y stands in for x.
_ROW = np.dtype("u2, u2, i4, u4, u1, u1, u2")
_ROW.names = ("y", "gap", "sec", "nsec", "p", "pad", "next_x")
_LAST_ROW = 13
_ROS1_ROW = np.dtype([("x", "<u2"), ("y", "<u2"), ("sec", "<u4"), ("nsec", "<u4"), ("p", "u1")])


class DvsDecoder:
    """Decodes serialized EventArray messages, with the interface of the packet decoders.

    `t` is the events' ROS time in integer us. The sensor's size comes with each message.
    """

    def __init__(self) -> None:
        self.damage: Counter[str] = Counter()

    def decode(self, payload: bytes | memoryview, time_base: int = 0) -> EventBatch:
        data = bytes(payload)
        try:
            order, height, width, count, start = _parse_head(data)
        except (struct.error, IndexError):
            self.damage["torn_messages"] += 1
            return EventBatch.empty(0, 0)
        complete = min(count, max(0, len(data) - start + 16 - _LAST_ROW) // 16)
        if complete < count:
            self.damage["torn_messages"] += 1
        if max(width, height) and not is_sensor(width, height):
            self.damage["impossible_sizes"] += 1
            return EventBatch.empty(0, 0)
        if not complete:
            return EventBatch.empty(width, height)
        body = data[start : start + complete * 16].ljust(complete * 16, b"\0")
        rows = np.frombuffer(body, _ROW.newbyteorder(order))
        x, y = np.empty(complete, np.uint16), rows["y"].astype(np.uint16)
        x[0], y[0] = rows["y"][0], rows["gap"][0]
        x[1:] = rows["next_x"][:-1]
        t = rows["sec"].astype(np.int64) * 1_000_000 + rows["nsec"] // 1000
        batch = EventBatch(t, x, y, (rows["p"] != 0).astype(np.uint8), width, height)
        return drop_outside(batch, self.damage)


def encode_dvs(batch: EventBatch, stamp_ns: int) -> bytes:
    """Return the batch as a serialized EventArray; `batch.t` is ROS time in us."""
    sec, micros = np.divmod(batch.t, 1_000_000)
    head = _head(*divmod(stamp_ns, 1_000_000_000), b"event_camera", batch.height, batch.width, len(batch))
    return head + _rows(batch.x, batch.y, sec, micros * 1000, batch.p)


def dvs_of_ros1(raw: bytes) -> bytes:
    """Return an EventArray in ROS 1's serialization, where nothing is aligned, as CDR.

    A torn message keeps its complete events and its stated count, so that the decoder detects the damage.
    Raises struct.error when the header is torn.
    """
    _, sec, nanosec, length = struct.unpack_from("<4I", raw)
    height, width, count = struct.unpack_from("<3I", raw, 16 + length)
    start = 28 + length
    events = np.frombuffer(raw, _ROS1_ROW, min(count, (len(raw) - start) // _ROS1_ROW.itemsize), start)
    head = _head(sec, nanosec, raw[16 : 16 + length], height, width, count)
    return head + _rows(*(events[name] for name in ("x", "y", "sec", "nsec", "p")))


def dvs_end_mark(stamp_ns: int) -> bytes:
    """Return the EventArray by which a player shows that the stream has reached this stamp."""
    return encode_dvs(EventBatch.empty(0, 0), stamp_ns)


def is_dvs_end_mark(data: bytes) -> bool:
    """Return whether a message is a player's mark that the stream has reached its stamp."""
    try:
        return _parse_head(data)[1:4] == (0, 0, 0)
    except (struct.error, IndexError):
        return False


def _head(sec: int, nanosec: int, frame_id: bytes, height: int, width: int, count: int) -> bytes:
    # ROS 1 has the seconds unsigned, ROS 2 signed.
    head = struct.pack("<4sIII", b"\0\1\0\0", sec & 0xFFFFFFFF, nanosec, len(frame_id) + 1) + frame_id + b"\0"
    return head + bytes(-(len(head) - 4) % 4) + struct.pack("<III", height, width, count)


def _rows(x: np.ndarray, y: np.ndarray, sec: np.ndarray, nsec: np.ndarray, p: np.ndarray) -> bytes:
    if not len(x):
        return b""
    rows = np.zeros(len(x), _ROW.newbyteorder("<"))
    rows["y"], rows["p"], rows["sec"], rows["nsec"] = y, p, sec, nsec
    rows["next_x"][:-1] = x[1:]
    rows["y"][0], rows["gap"][0] = x[0], y[0]
    return rows.tobytes()[: (len(x) - 1) * 16 + _LAST_ROW]


def _parse_head(data: bytes) -> tuple[Literal["<", ">"], int, int, int, int]:
    """Byte order, height, width, number of events and where they start."""
    order: Literal["<", ">"] = "<" if data[1] == 1 else ">"
    (frame_id_length,) = struct.unpack_from(order + "I", data, 12)
    # Alignment counts from the end of the 4-byte encapsulation header.
    start = 16 + frame_id_length
    start += -(start - 4) % 4
    height, width, count = struct.unpack_from(order + "III", data, start)
    return order, height, width, count, start + 12
