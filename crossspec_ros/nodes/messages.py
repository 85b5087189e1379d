"""ROS messages to arrays and back, without the slow paths of rclpy."""

from __future__ import annotations

import array
from collections.abc import Mapping

import numpy as np
from builtin_interfaces.msg import Time
from crossspec_msgs.msg import WindowClosed
from diagnostic_msgs.msg import KeyValue
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import Header

from crossspec_ros.errors import InputError
from crossspec_ros.windows.window import Counts


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
    if message.encoding != "rgb8":
        raise InputError(
            f"an image has the encoding '{message.encoding}' and not rgb8: subscribe the captioner to the "
            f"synchronizer's topics"
        )
    return _pixels(message, channels=3)


def camera_array(message: Image) -> np.ndarray:
    """A camera's image in one of the common encodings as (H, W, 3) RGB uint8; raises InputError for others.

    The cv_bridge on PyPI would do, but that it takes padded rows for pixels and does not know bayer_grbg8.
    """
    import cv2

    if message.encoding not in _ENCODINGS:
        raise InputError(
            f"an image has the unknown encoding '{message.encoding}': let the camera publish one of "
            f"{', '.join(_ENCODINGS)}"
        )
    channels, conversion = _ENCODINGS[message.encoding]
    pixels = _pixels(message, channels)
    if not conversion:
        return pixels
    try:
        return np.asarray(cv2.cvtColor(pixels, getattr(cv2, f"COLOR_{conversion}")))
    except cv2.error as error:
        raise InputError(
            f"an image of {message.width}x{message.height} in {message.encoding} cannot be converted "
            f"({error.err}): check the node that publishes it"
        ) from None


_ENCODINGS = {
    "rgb8": (3, ""),
    "bgr8": (3, "BGR2RGB"),
    "rgba8": (4, "RGBA2RGB"),
    "bgra8": (4, "BGRA2RGB"),
    "mono8": (1, "GRAY2RGB"),
    "bayer_rggb8": (1, "BayerRGGB2RGB"),
    "bayer_bggr8": (1, "BayerBGGR2RGB"),
    "bayer_gbrg8": (1, "BayerGBRG2RGB"),
    "bayer_grbg8": (1, "BayerGRBG2RGB"),
    "yuv422": (2, "YUV2RGB_UYVY"),
    "yuv422_yuy2": (2, "YUV2RGB_YUY2"),
}
"""Bytes per pixel and OpenCV's conversion of each encoding."""


def _pixels(message: Image, channels: int) -> np.ndarray:
    row, size = message.width * channels, message.height * message.step
    if not row or not size or message.step < row or len(message.data) != size:
        raise InputError(
            f"an image of {message.width}x{message.height} in {message.encoding} does not fit its "
            f"{len(message.data)} bytes in rows of {message.step}: check the node that publishes it"
        )
    rows = np.frombuffer(message.data, np.uint8).reshape(message.height, message.step)
    return rows[:, :row].reshape(message.height, message.width, channels)


def compressed_array(message: CompressedImage) -> np.ndarray:
    """A JPEG or PNG image as (H, W, 3) RGB uint8; raises InputError when it is neither or broken."""
    import cv2

    data = np.frombuffer(message.data, np.uint8)
    try:
        image = cv2.imdecode(data, cv2.IMREAD_COLOR)
    except cv2.error:  # nothing at all, or more pixels than OpenCV takes
        image = None
    if image is None:
        raise InputError(
            f"a compressed image with format '{message.format}' and {len(data)} bytes cannot be read: "
            f"let the camera publish jpeg or png"
        )
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2RGB))


def key_values(values: Mapping[str, str]) -> list[KeyValue]:
    """A mapping in the form of a DiagnosticStatus's values."""
    return [KeyValue(key=key, value=value) for key, value in values.items()]


def closed_message(end_ns: int, counts: Counts) -> WindowClosed:
    """A closed window: its end and what it has."""
    return WindowClosed(header=Header(stamp=to_time(end_ns)), **counts._asdict())


def closed_counts(message: WindowClosed) -> Counts:
    """What a closed window has."""
    return Counts(*(getattr(message, name) for name in Counts._fields))
