"""ROS messages to arrays and back, without the slow paths of rclpy."""

from __future__ import annotations

import array
import re
from functools import cache
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import Header

from crossspec_ros.errors import InputError


def reliable(depth: int) -> QoSProfile:
    """For what must not be lost."""
    return QoSProfile(
        depth=depth, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.VOLATILE
    )


RELIABLE = reliable(64)
"""Of all topics between and after our own nodes."""


def best_effort(depth: int) -> QoSProfile:
    """What sensors publish with, so that a slow subscriber never slows a driver down."""
    return QoSProfile(
        depth=depth, reliability=ReliabilityPolicy.BEST_EFFORT, durability=DurabilityPolicy.VOLATILE
    )


def to_ns(stamp: Time) -> int:
    """A stamp in nanoseconds."""
    return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)


def to_time(stamp_ns: int) -> Time:
    """Nanoseconds as a stamp."""
    return Time(sec=stamp_ns // 1_000_000_000, nanosec=stamp_ns % 1_000_000_000)


def image_message(image: np.ndarray, stamp_ns: int, frame_id: str) -> Image:
    """An (H, W, 3) uint8 RGB array as an rgb8 message."""
    height, width = image.shape[:2]
    message = Image(height=height, width=width, encoding="rgb8", step=3 * width)
    message.header = Header(stamp=to_time(stamp_ns), frame_id=frame_id)
    # An array.array is taken over as it is; assigning an ndarray would check every byte, 57 ms per MB.
    message.data = array.array("B", image.tobytes())
    return message


def rgb8_array(message: Image) -> np.ndarray:
    """An rgb8 message as an (H, W, 3) uint8 view of its data; raises InputError for any other message."""
    row, size = 3 * message.width, message.step * message.height
    if message.encoding != "rgb8" or message.step < row or not row or len(message.data) != size or not size:
        raise InputError(
            f"an image with encoding '{message.encoding}', {message.width}x{message.height} and "
            f"{len(message.data)} bytes is no rgb8 image: subscribe the captioner to the synchronizer"
        )
    rows = np.frombuffer(message.data, np.uint8).reshape(message.height, message.step)
    return rows[:, :row].reshape(message.height, message.width, 3)


def camera_array(message: Image) -> np.ndarray:
    """A camera's image in any encoding cv_bridge turns into (H, W, 3) RGB; InputError if not."""
    try:
        return np.asarray(_bridge().imgmsg_to_cv2(message, "rgb8"))
    except Exception as error:  # cv_bridge lets OpenCV's and numpy's errors through
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"an image with encoding '{message.encoding}', {message.width}x{message.height} and "
            f"{len(message.data)} bytes cannot be read ({reason}): let the camera publish rgb8"
        ) from None


def compressed_array(message: CompressedImage) -> np.ndarray:
    """A JPEG or PNG image as (H, W, 3) RGB uint8; raises InputError when it is neither or broken."""
    import cv2

    data = np.frombuffer(message.data, np.uint8)
    image = cv2.imdecode(data, cv2.IMREAD_COLOR) if len(data) else None
    if image is None:
        raise InputError(
            f"a compressed image with format '{message.format}' and {len(data)} bytes cannot be read: "
            f"let the camera publish jpeg or png"
        )
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2RGB))


def closed_message(end_ns: int, frames: int, event_images: int) -> Header:
    """A closed window: its end and how many images of each kind it has."""
    return Header(stamp=to_time(end_ns), frame_id=f"frames:{frames} event_images:{event_images}")


def closed_counts(message: Header) -> tuple[int, int]:
    """Frames and event images announced by a closed window; raises InputError when it does not say."""
    match = re.fullmatch(r"frames:(\d+) event_images:(\d+)", message.frame_id)
    if not match:
        raise InputError(
            f"a closed window announces '{message.frame_id}', not how many images it has: subscribe the "
            f"captioner to the synchronizer's window_closed"
        )
    return int(match[1]), int(match[2])


@cache
def _bridge() -> Any:
    from cv_bridge import CvBridge

    return CvBridge()
