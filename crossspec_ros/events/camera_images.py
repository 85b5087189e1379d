"""Camera images in the encodings that ROS drivers send, as RGB: for live topics and recordings alike.

A message is anything with the fields of `sensor_msgs/msg/Image` or `CompressedImage`, of rclpy or of rosbags.
"""

from __future__ import annotations

import re
from io import BytesIO
from typing import Any

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.image_bounds import check_size


def camera_array(message: Any) -> np.ndarray:
    """Return a camera's Image as (H, W, 3) RGB uint8; samples of 16 bits keep their upper 8.

    Raises InputError for an encoding that is not read, such as depth, and for data that do not fit.

    The cv_bridge on PyPI would do, but that it takes padded rows for pixels and does not know bayer_grbg8.
    """
    import cv2

    encoding = message.encoding
    if encoding in _PLANAR:
        pixels, conversion = _two_planes(message), _PLANAR[encoding]
    elif encoding in _ENCODINGS:
        channels, bits, conversion = _ENCODINGS[encoding]
        pixels = pixels_of(message, channels * bits // 8)
        if bits == 16:
            pixels = np.ascontiguousarray(pixels[..., 0 if message.is_bigendian else 1 :: 2])
    else:
        raise _unread(encoding)
    if not conversion:
        return pixels
    try:
        return np.asarray(cv2.cvtColor(pixels, getattr(cv2, f"COLOR_{conversion}")))
    except cv2.error as error:
        raise InputError(
            f"an image of {message.width}x{message.height} in {encoding} cannot be converted "
            f"({error.err}): check the node that publishes it"
        ) from None


def wide_samples(message: Any) -> np.ndarray | None:
    """Return the samples of an Image of 16 bits as (H, W, channels) uint16; None for other encodings.

    Raises InputError for data that do not fit.
    """
    channels, bits, _ = _ENCODINGS.get(message.encoding, (0, 0, ""))
    if bits != 16:
        return None
    return pixels_of(message, channels * 2).view(">u2" if message.is_bigendian else "<u2")


_OF_BOTH_DEPTHS = {
    "rgb": (3, ""),
    "bgr": (3, "BGR2RGB"),
    "rgba": (4, "RGBA2RGB"),
    "bgra": (4, "BGRA2RGB"),
    "mono": (1, "GRAY2RGB"),
    **{f"bayer_{tile.lower()}": (1, f"Bayer{tile}2RGB") for tile in ("RGGB", "BGGR", "GBRG", "GRBG")},
}
_ENCODINGS = {
    **{f"{name}{bits}": (n, bits, way) for name, (n, way) in _OF_BOTH_DEPTHS.items() for bits in (8, 16)},
    # What OpenCV's users send without a meaning is grey, or in OpenCV's order of colours.
    "8UC1": (1, 8, "GRAY2RGB"),
    "8UC3": (3, 8, "BGR2RGB"),
    "8UC4": (4, 8, "BGRA2RGB"),
    **dict.fromkeys(("yuv422", "uyvy"), (2, 8, "YUV2RGB_UYVY")),
    **dict.fromkeys(("yuv422_yuy2", "yuyv"), (2, 8, "YUV2RGB_YUY2")),
}
"""Samples per pixel, bits per sample, and OpenCV's conversion of each encoding."""
_MOSAICS = {name: way for name, (_, _, way) in _ENCODINGS.items() if name.startswith("bayer_")}
_PLANAR = {"nv12": "YUV2RGB_NV12", "nv21": "YUV2RGB_NV21"}
_WIDE = re.compile(r"(16|32|64)[USF]C\d*")
_DEPTH = re.compile("(16|32|64)[USF]C1")


def pixels_of(message: Any, channels: int) -> np.ndarray:
    """Return the bytes of an image as (H, W, channels) uint8, without the padding of its rows.

    Raises InputError where they do not fit its size.
    """
    row, size = message.width * channels, message.height * message.step
    if not row or not size or message.step < row or len(message.data) != size:
        raise _misfit(message)
    check_size(message.width, message.height)
    rows = np.frombuffer(message.data, np.uint8).reshape(message.height, message.step)
    # A view would keep the padding, which no limit counts.
    pixels = rows[:, :row].copy() if message.step > row else rows
    return pixels.reshape(message.height, message.width, channels)


def _two_planes(message: Any) -> np.ndarray:
    """Return (3/2 H, W) uint8: a plane of Y above one of U and V in half as many rows.

    `step` is not used, because drivers differ in whether it counts the second plane.
    """
    rows = message.height * 3 // 2
    if not rows or not message.width or len(message.data) % rows or len(message.data) < rows * message.width:
        raise _misfit(message)
    check_size(message.width, message.height)
    return np.frombuffer(message.data, np.uint8).reshape(rows, -1)[:, : message.width]


def _unread(encoding: str) -> InputError:
    spelt = {name.lower(): name for name in (*_ENCODINGS, *_PLANAR)}.get(encoding.lower())
    if spelt:
        return InputError(
            f"an image has the encoding '{encoding}', which is not read: let the camera write '{spelt}'"
        )
    meaning = " (it is depth as a rule)" if _DEPTH.fullmatch(encoding) else ""
    return InputError(
        f"an image has the encoding '{encoding}', which is not read{meaning}: let the camera publish rgb8, "
        f"bgr8 or mono8, or choose another topic of images"
    )


def _misfit(message: Any) -> InputError:
    return InputError(
        f"an image of {message.width}x{message.height} in {message.encoding} does not fit its "
        f"{len(message.data)} bytes in rows of {message.step}: check the node that publishes it"
    )


def encoded_size(data: bytes) -> tuple[int, int]:
    """Return width and height of a JPEG or PNG without decoding it; raises OSError where it is neither."""
    from PIL import Image

    try:
        return Image.open(BytesIO(data), formats=("JPEG", "PNG")).size
    # Damaged headers raise SyntaxError, struct.error and others.
    except Exception as error:
        raise OSError(str(error)) from None


def compressed_array(message: Any) -> np.ndarray:
    """Return a JPEG or PNG image as (H, W, 3) RGB uint8; a mosaic is demosaiced.

    Raises InputError when it is neither, broken, or depth.
    """
    import cv2

    # image_transport names the raw encoding first; as colours depth would only look dark.
    encoding = message.format.partition(";")[0]
    if _WIDE.match(encoding):
        raise _unread(encoding)
    data = bytes(message.data)
    try:
        check_size(*encoded_size(data))
        pixels = np.frombuffer(data, np.uint8)
        mosaic = cv2.imdecode(pixels, cv2.IMREAD_UNCHANGED) if encoding in _MOSAICS else None
        # A publisher that demosaics before it compresses keeps the first word of the format.
        if mosaic is not None and mosaic.ndim == 2:
            samples = mosaic if mosaic.dtype == np.uint8 else (mosaic // 256).astype(np.uint8)
            return np.asarray(cv2.cvtColor(samples, getattr(cv2, f"COLOR_{_MOSAICS[encoding]}")))
        image = cv2.imdecode(pixels, cv2.IMREAD_COLOR)
    except (OSError, cv2.error):
        image = None
    if image is None:
        raise InputError(
            f"a compressed image with format '{message.format}' and {len(data)} bytes cannot be read: "
            f"let the camera publish jpeg or png"
        )
    # In place: it may have 150 MB.
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=image))
