"""Conversion of camera images, live or recorded, from the drivers' encodings to RGB.

A message has the fields of `sensor_msgs/msg/Image` or `CompressedImage`, and comes from rclpy or rosbags.
"""

from __future__ import annotations

import re
from io import BytesIO
from typing import Any

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.image_bounds import check_size


def camera_array(message: Any) -> np.ndarray:
    """Return a camera's Image as (H, W, 3) RGB uint8; 16-bit samples keep their upper 8 bits.

    Raises InputError for an unsupported encoding, such as depth, and for data that do not fit the size.

    The cv_bridge on PyPI is no replacement: it reads the padding of rows as pixels, and lacks bayer_grbg8.
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
    """Return the samples of a 16-bit Image as (H, W, channels) uint16; None for other encodings.

    Raises InputError for data that do not fit the size.
    """
    channels, bits, _ = _ENCODINGS.get(message.encoding, (0, 0, ""))
    if bits != 16:
        return None
    return pixels_of(message, channels * 2).view(">u2" if message.is_bigendian else "<u2")


_8_OR_16_BITS = {
    "rgb": (3, ""),
    "bgr": (3, "BGR2RGB"),
    "rgba": (4, "RGBA2RGB"),
    "bgra": (4, "BGRA2RGB"),
    "mono": (1, "GRAY2RGB"),
    **{f"bayer_{tile.lower()}": (1, f"Bayer{tile}2RGB") for tile in ("RGGB", "BGGR", "GBRG", "GRBG")},
}
_ENCODINGS = {
    **{f"{name}{bits}": (n, bits, code) for name, (n, code) in _8_OR_16_BITS.items() for bits in (8, 16)},
    # OpenCV's generic types state no colours. Their users send grey, or OpenCV's order BGR.
    "8UC1": (1, 8, "GRAY2RGB"),
    "8UC3": (3, 8, "BGR2RGB"),
    "8UC4": (4, 8, "BGRA2RGB"),
    **dict.fromkeys(("yuv422", "uyvy"), (2, 8, "YUV2RGB_UYVY")),
    **dict.fromkeys(("yuv422_yuy2", "yuyv"), (2, 8, "YUV2RGB_YUY2")),
}
"""Samples per pixel, bits per sample, and OpenCV's conversion of each encoding."""
_MOSAICS = {name: code for name, (_, _, code) in _ENCODINGS.items() if name.startswith("bayer_")}
_PLANAR = {"nv12": "YUV2RGB_NV12", "nv21": "YUV2RGB_NV21"}
_WIDE = re.compile(r"(16|32|64)[USF]C\d*")
_DEPTH = re.compile("(16|32|64)[USF]C1")


def pixels_of(message: Any, channels: int) -> np.ndarray:
    """Return an image of `channels` bytes per pixel as (H, W, channels) uint8, without the padding of rows.

    Raises InputError for data that do not fit the size, and for an image that is too large.
    """
    row, size = message.width * channels, message.height * message.step
    if not row or not size or message.step < row or len(message.data) != size:
        raise _misfit(message)
    check_size(message.width, message.height)
    rows = np.frombuffer(message.data, np.uint8).reshape(message.height, message.step)
    # A view would keep the padding in memory, and `check_size` does not limit the padding.
    pixels = rows[:, :row].copy() if message.step > row else rows
    return pixels.reshape(message.height, message.width, channels)


def _two_planes(message: Any) -> np.ndarray:
    """Return (3/2 H, W) uint8: the plane of Y, and then half as many rows of U and V.

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
            f"an image has the encoding '{encoding}', which is not read: let the camera publish '{spelt}'"
        )
    meaning = " (it is usually depth)" if _DEPTH.fullmatch(encoding) else ""
    return InputError(
        f"an image has the encoding '{encoding}', which is not read{meaning}: let the camera publish rgb8, "
        f"bgr8 or mono8, or choose another image topic"
    )


def _misfit(message: Any) -> InputError:
    return InputError(
        f"an image of {message.width}x{message.height} in {message.encoding} does not fit its "
        f"{len(message.data)} bytes in rows of {message.step}: check the node that publishes it"
    )


def encoded_size(data: bytes) -> tuple[int, int]:
    """Return width and height of a JPEG or PNG without decoding it; raises OSError for other data."""
    from PIL import Image

    try:
        return Image.open(BytesIO(data), formats=("JPEG", "PNG")).size
    # Damaged headers raise SyntaxError, struct.error and others.
    except Exception as error:
        raise OSError(str(error)) from None


def compressed_array(message: Any) -> np.ndarray:
    """Return a JPEG or PNG image as (H, W, 3) RGB uint8; a Bayer mosaic is demosaiced.

    Raises InputError for other formats, damaged data, an image that is too large, and depth.
    """
    import cv2

    # image_transport names the raw encoding first. Depth that is decoded as colours would only look dark.
    encoding = message.format.partition(";")[0]
    if _WIDE.match(encoding):
        raise _unread(encoding)
    data = bytes(message.data)
    try:
        check_size(*encoded_size(data))
        pixels = np.frombuffer(data, np.uint8)
        mosaic = cv2.imdecode(pixels, cv2.IMREAD_UNCHANGED) if encoding in _MOSAICS else None
        # Some publishers demosaic before they compress, but still name the Bayer encoding first.
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
    # The conversion is in place, because an image may have 150 MB.
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=image))
