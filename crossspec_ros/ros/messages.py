"""ROS messages: their delivery, a queue of them, and how they become arrays and back, without the slow paths
of rclpy."""

from __future__ import annotations

import array
import queue
from collections import deque
from collections.abc import Mapping, Sequence
from pkgutil import resolve_name
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from crossspec_msgs.msg import WindowClosed as ClosedMessage
from diagnostic_msgs.msg import KeyValue
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image
from std_msgs.msg import Header

from crossspec_ros.errors import InputError
from crossspec_ros.events.camera_images import encoded_size, pixels_of
from crossspec_ros.events.cdr import to_ns
from crossspec_ros.image_bounds import check_size
from crossspec_ros.windows.resize import MOST_ENLARGED
from crossspec_ros.windows.window import WindowClosed


def reliable(depth: int) -> QoSProfile:
    """For what must not be lost."""
    return QoSProfile(
        depth=depth, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.VOLATILE
    )


RELIABLE = reliable(64)
"""Profile of all topics between and after our own nodes."""


def best_effort(depth: int) -> QoSProfile:
    """The profile that sensors publish with, so that a slow subscriber never slows a driver down."""
    return QoSProfile(
        depth=depth, reliability=ReliabilityPolicy.BEST_EFFORT, durability=DurabilityPolicy.VOLATILE
    )


FIRST_NS = -(2**31) * 1_000_000_000
"""The first time that a stamp can tell."""
_LAST_NS = (2**31 - 1) * 1_000_000_000


def to_time(stamp_ns: int) -> Time:
    """Nanoseconds as a stamp."""
    return Time(sec=stamp_ns // 1_000_000_000, nanosec=stamp_ns % 1_000_000_000)


def ros_time(node: Node) -> Time:
    """Now; of a simulated clock beyond what a stamp can tell, the last time that it can."""
    return to_time(min(int(node.get_clock().now().nanoseconds), _LAST_NS))


def image_message(image: np.ndarray, stamp_ns: int, frame_id: str) -> Image:
    """An (H, W, 3) uint8 RGB array as an rgb8 message."""
    height, width = image.shape[:2]
    message = Image(height=height, width=width, encoding="rgb8", step=3 * width)
    message.header = Header(stamp=to_time(stamp_ns), frame_id=frame_id)
    # An array.array is taken over as it is; assigning an ndarray would check every byte, 57 ms per MB.
    message.data = array.array("B")
    message.data.frombytes(np.ascontiguousarray(image))
    return message


_MOST_FRAME_BYTES = 3 * MOST_ENLARGED
"""Bytes of an image that a captioner takes: windows have many, and some are copied."""


def rgb8_array(message: Image) -> np.ndarray:
    """An rgb8 message as an (H, W, 3) uint8 view of its data.

    Raises InputError for any other message, and for one that is larger than models look at.
    """
    if message.encoding != "rgb8":
        raise InputError(
            f"an image has the encoding '{message.encoding}' and not rgb8: subscribe the captioner to the "
            f"synchronizer's topics"
        )
    if len(message.data) > _MOST_FRAME_BYTES:
        raise InputError(
            f"an image of {message.width}x{message.height} has more than the {_MOST_FRAME_BYTES // 10**6} MB "
            f"that a captioner takes: let the synchronizer publish smaller ones (frame_size)"
        )
    return pixels_of(message, channels=3)


def key_values(values: Mapping[str, str]) -> list[KeyValue]:
    """A mapping in the form of a DiagnosticStatus's values."""
    return [KeyValue(key=key, value=value) for key, value in values.items()]


def closed_message(closed: WindowClosed) -> ClosedMessage:
    """A closed window: its end and what it has."""
    end_ns, *counts = closed
    values = zip(WindowClosed._fields[1:], counts, strict=True)
    return ClosedMessage(header=Header(stamp=to_time(end_ns)), **dict(values))


def closed_window(message: ClosedMessage) -> WindowClosed:
    """The end of a closed window and what it has."""
    counts = (getattr(message, name) for name in WindowClosed._fields[1:])
    return WindowClosed(to_ns(message.header.stamp), *counts)


def message_class(event_type: str) -> type:
    """The message class of a synchronizer's `event_type`; raises InputError where it is not installed."""
    package, name = event_type.split("/")
    try:
        return resolve_name(f"{package}.msg:{name}")
    except ImportError:
        # The driver has the messages of its own; the others are in interfaces/.
        setup = "" if package == "dv_ros2_msgs" else "run make setup, or "
        raise InputError(
            f"the message type {event_type} is not installed: {setup}build the package {package} in your "
            f"workspace and source it"
        ) from None


class MessageQueue(queue.Queue[tuple[str, Any] | None]):
    """A queue of streams and their messages, serialized or not; None ends it.

    It is bounded in bytes, too: of full-HD frames 2,000 would be 12 GB. A compressed image counts with its
    pixels, for it is their number that takes time: 60 black PNGs of 9 MB in all took 25 s.

    Raises queue.Full also for a message with which more than `most_bytes` would wait; one that
    waits alone may be larger.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        super().__init__(most)
        self._most_bytes = most_bytes
        self._sizes: deque[int] = deque()
        self.bytes = 0

    # Called by `queue.Queue` with its lock held, as its documentation offers.
    def _put(self, item: tuple[str, Any] | None) -> None:
        size = _size(item)
        if self.bytes and self.bytes + size > self._most_bytes:
            raise queue.Full
        super()._put(item)
        self._sizes.append(size)
        self.bytes += size

    def _get(self) -> tuple[str, Any] | None:
        self.bytes -= self._sizes.popleft()
        return super()._get()


def _size(item: tuple[str, Any] | None) -> int:
    """Bytes of the payload and of the texts beside it; all else is small."""
    if item is None:
        return 0
    message = item[1]
    if isinstance(message, bytes):
        return len(message)
    # An event packet has `events`, an image has `data`.
    payload = message.events if hasattr(message, "events") else message.data
    texts = (getattr(message, "encoding", ""), getattr(message, "format", ""), message.header.frame_id)
    size = len(payload) + sum(len(text) if text.isascii() else 4 * len(text) for text in texts)
    return size + _pixel_bytes(message.data) if hasattr(message, "format") else size


def _pixel_bytes(compressed: Sequence[int]) -> int:
    try:
        width, height = encoded_size(bytes(compressed))
        check_size(width, height)
    except (InputError, OSError):  # it will be refused, and takes no time
        return 0
    return 3 * width * height
