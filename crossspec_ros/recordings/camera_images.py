"""Camera images in the encodings that ROS drivers send, as RGB: for live topics and recordings alike.

A message is anything with the fields of `sensor_msgs/msg/Image` or `CompressedImage`, of rclpy or of rosbags.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.windows.image_bounds import MOST_PIXELS, check_size


def camera_array(message: Any) -> np.ndarray:
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
    pixels = pixels_of(message, channels)
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


def pixels_of(message: Any, channels: int) -> np.ndarray:
    """The bytes of an image as (H, W, channels) uint8, without the padding of its rows.

    Raises InputError where they do not fit its size.
    """
    row, size = message.width * channels, message.height * message.step
    if not row or not size or message.step < row or len(message.data) != size:
        raise InputError(
            f"an image of {message.width}x{message.height} in {message.encoding} does not fit its "
            f"{len(message.data)} bytes in rows of {message.step}: check the node that publishes it"
        )
    check_size(message.width, message.height)
    rows = np.frombuffer(message.data, np.uint8).reshape(message.height, message.step)
    return rows[:, :row].reshape(message.height, message.width, channels)


def compressed_array(message: Any) -> np.ndarray:
    """A JPEG or PNG image as (H, W, 3) RGB uint8; raises InputError when it is neither or broken."""
    import cv2

    data = np.frombuffer(message.data, np.uint8)
    if size := _encoded_size(data.tobytes()):
        check_size(*size)
    try:
        image = cv2.imdecode(data, cv2.IMREAD_COLOR) if size else None
    except cv2.error:
        image = None
    if image is None:
        raise InputError(
            f"a compressed image with format '{message.format}' and {len(data)} bytes cannot be read: "
            f"let the camera publish jpeg or png"
        )
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2RGB))


def _encoded_size(data: bytes) -> tuple[int, int] | None:
    """Width and height from the header of an encoded image, which is not decoded; None where it is none."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            return image.size
    except Image.DecompressionBombError:
        raise InputError(
            f"a compressed image has more than the {MOST_PIXELS} pixels that are taken: let the camera "
            f"publish smaller images"
        ) from None
    except (OSError, ValueError, SyntaxError):
        return None
