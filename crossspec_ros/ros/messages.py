"""ROS messages: QoS profiles, a bounded queue, and conversions that avoid the slow paths of rclpy."""

from __future__ import annotations

import array
import queue
from pkgutil import resolve_name
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from crossspec_msgs.msg import WindowClosed as ClosedMessage
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image
from std_msgs.msg import Header

from crossspec_ros.captioning.window_messages import WindowMessages
from crossspec_ros.errors import InputError
from crossspec_ros.events.camera_images import pixels_of
from crossspec_ros.events.cdr import to_ns
from crossspec_ros.windows.window import WindowClosed


def reliable(depth: int) -> QoSProfile:
    """Return the profile of topics that must not lose messages."""
    return QoSProfile(depth=depth, reliability=ReliabilityPolicy.RELIABLE)


def best_effort(depth: int) -> QoSProfile:
    """Return the profile of sensor topics, with which a slow subscriber never slows a driver down."""
    return QoSProfile(depth=depth, reliability=ReliabilityPolicy.BEST_EFFORT)


RELIABLE = reliable(64)
"""Profile of the topics of crossspec_ros."""


def to_time(stamp_ns: int) -> Time:
    """Return nanoseconds as a stamp, at least the earliest one that ROS can represent."""
    return MESSAGES.stamp(stamp_ns)


def image_message(image: np.ndarray, stamp_ns: int, frame_id: str) -> Image:
    """Return an (H, W, 3) uint8 RGB array as an rgb8 message."""
    height, width = image.shape[:2]
    message = Image(height=height, width=width, encoding="rgb8", step=3 * width)
    message.header = Header(stamp=to_time(stamp_ns), frame_id=frame_id)
    # rclpy uses an array.array without a check. It checks every byte of an ndarray, 57 ms per MB.
    message.data = array.array("B")
    message.data.frombytes(np.ascontiguousarray(image))
    return message


def rgb8_array(message: Image) -> np.ndarray:
    """Return an rgb8 message as (H, W, 3) uint8. Raises InputError for another encoding or a wrong size."""
    if message.encoding != "rgb8":
        raise InputError(
            f"an image has the encoding '{message.encoding}' in place of rgb8: subscribe the captioner to "
            f"the synchronizer's topics"
        )
    return pixels_of(message, channels=3)


def closed_message(closed: WindowClosed) -> ClosedMessage:
    """Return the message about a closed window."""
    end_ns, *counts = closed
    values = zip(WindowClosed._fields[1:], counts, strict=True)
    return ClosedMessage(header=Header(stamp=to_time(end_ns)), **dict(values))


def closed_window(message: ClosedMessage) -> WindowClosed:
    """Return the closed window of a message."""
    counts = (getattr(message, name) for name in WindowClosed._fields[1:])
    return WindowClosed(to_ns(message.header.stamp), *counts)


def message_class(event_type: str) -> type:
    """Return the class of a type such as PACKAGE/NAME. Raises InputError if PACKAGE is not installed."""
    package, name = event_type.split("/")
    try:
        return resolve_name(f"{package}.msg:{name}")
    except ImportError:
        # The driver contains dv_ros2_msgs. The other packages are in interfaces/.
        setup = "" if package == "dv_ros2_msgs" else "run make setup, or "
        raise InputError(
            f"the message type {event_type} is not installed: {setup}build the package {package} in your "
            f"workspace and source it"
        ) from None


def new_message(type_name: str, **values: Any) -> Any:
    """Return a message of a type such as PACKAGE/msg/NAME with these fields."""
    return message_class(type_name.replace("/msg/", "/"))(**values)


MESSAGES = WindowMessages(new_message)


class MessageQueue(queue.Queue[tuple[str, Any] | None]):
    """Queue of (stream, message), bounded by number and payload bytes. The item None marks its end.

    `put_nowait` raises queue.Full for a message beyond either bound. A single waiting message may be larger
    than `max_bytes`.
    """

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        super().__init__(max_messages)
        self._max_bytes = max_bytes
        self.bytes = 0

    # queue.Queue holds its lock while it calls these two methods.
    def _put(self, item: tuple[str, Any] | None) -> None:
        size = _payload_bytes(item)
        if size and self.bytes and self.bytes + size > self._max_bytes:
            raise queue.Full
        self.bytes += size
        super()._put(item)

    def _get(self) -> tuple[str, Any] | None:
        item = super()._get()
        self.bytes -= _payload_bytes(item)
        return item


def _payload_bytes(item: tuple[str, Any] | None) -> int:
    if item is None:
        return 0
    message = item[1]
    if isinstance(message, bytes):
        return len(message)
    # An event packet has `events`, an image has `data`.
    return len(message.events if hasattr(message, "events") else message.data)
