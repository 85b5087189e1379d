"""Lossless frames on the wire, so that captions equal those of the camera's own pixels."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.camera_images import compressed_array
from crossspec_ros.image_bounds import check_size
from crossspec_ros.wire import captions_pb2 as wire

_LEVEL = 1
"""PNG compression level. Higher levels are several times slower and save a few percent."""


def frame_message(frame: np.ndarray, stamp_ns: int) -> wire.Frame:
    """Return the message of an (H, W, 3) RGB uint8 frame, as PNG."""
    import cv2

    done, png = cv2.imencode(".png", frame[:, :, ::-1], [cv2.IMWRITE_PNG_COMPRESSION, _LEVEL])
    assert done, "OpenCV writes any image of this shape"
    height, width = frame.shape[:2]
    return wire.Frame(stamp_ns=stamp_ns, height=height, width=width, compressed=True, data=png.tobytes())


def read_frame(message: wire.Frame) -> np.ndarray:
    """Return the (H, W, 3) RGB uint8 frame. Raises InputError for an invalid or too large frame."""
    size = f"{message.width}x{message.height}"
    if not message.height or not message.width:
        raise InputError(f"a frame has {size} pixels: send frames with pixels")
    check_size(message.width, message.height)
    if message.compressed:
        frame = compressed_array(SimpleNamespace(format="png or jpeg", data=message.data))
        if frame.shape[:2] != (message.height, message.width):
            raise InputError(f"the image of a frame differs from its size {size}: send the image's size")
        return frame
    if len(message.data) != message.height * message.width * 3:
        raise InputError(
            f"a frame of {size} has {len(message.data)} bytes: send 3 bytes per pixel, or PNG or JPEG"
        )
    return np.frombuffer(message.data, np.uint8).reshape(message.height, message.width, 3)
