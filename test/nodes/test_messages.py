"""Images survive the way into a message and back, and cameras may use any common encoding."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from sensor_msgs.msg import CompressedImage, Image

from crossspec_ros.errors import InputError
from crossspec_ros.nodes.messages import (
    camera_array,
    closed_counts,
    closed_message,
    compressed_array,
    image_message,
    rgb8_array,
    to_ns,
)
from crossspec_ros.windows.window import Counts

RGB = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)


def camera(encoding, pixels):
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    message = Image(encoding=encoding, height=pixels.shape[0], width=pixels.shape[1])
    message.step = message.width * channels
    message.data = pixels.tobytes()
    return message


def test_an_image_comes_back_as_it_went():
    message = image_message(RGB, 1_700_000_000_123_456_789, "camera")
    assert (message.encoding, message.header.frame_id) == ("rgb8", "camera")
    assert to_ns(message.header.stamp) == 1_700_000_000_123_456_789
    np.testing.assert_array_equal(rgb8_array(message), RGB)


def test_rows_may_be_padded():
    message = camera("rgb8", RGB)
    message.step, message.data = 32, np.pad(RGB.reshape(6, 24), ((0, 0), (0, 8))).tobytes()
    np.testing.assert_array_equal(rgb8_array(message), RGB)
    np.testing.assert_array_equal(camera_array(message), RGB)


def test_the_common_camera_encodings_become_rgb():
    np.testing.assert_array_equal(camera_array(camera("rgb8", RGB)), RGB)
    np.testing.assert_array_equal(camera_array(camera("bgr8", RGB[..., ::-1])), RGB)
    rgba = np.concatenate([RGB, RGB[..., :1]], 2)
    np.testing.assert_array_equal(camera_array(camera("rgba8", rgba)), RGB)
    grey = RGB[..., 0]
    np.testing.assert_array_equal(camera_array(camera("mono8", grey)), np.repeat(grey[..., None], 3, 2))


@pytest.mark.parametrize("pattern", ["rggb", "bggr", "gbrg", "grbg"])
def test_a_bayer_image_of_one_colour_becomes_that_colour(pattern):
    colour = dict(r=200, g=100, b=30)
    tile = np.array([colour[letter] for letter in pattern], np.uint8).reshape(2, 2)
    rgb = camera_array(camera(f"bayer_{pattern}8", np.tile(tile, (8, 8))))
    assert rgb[8, 8].tolist() == [200, 100, 30]


@pytest.mark.parametrize("damage", [dict(encoding="nonsense"), dict(data=b"\0" * 7), dict(height=900)])
def test_a_broken_image_is_a_sentence(damage):
    message = camera("rgb8", RGB)
    for field, value in damage.items():
        setattr(message, field, value)
    for read in (camera_array, rgb8_array):
        with pytest.raises(InputError, match="an image "):
            read(message)


def test_an_image_that_opencv_refuses_is_a_sentence():
    with pytest.raises(InputError, match="3x4 in yuv422 cannot be converted"):
        camera_array(camera("yuv422", np.zeros((4, 3, 2), np.uint8)))
    # A bitmap that claims 60000x60000 pixels.
    header = b"BM" + struct.pack(
        "<IHHIIiiHHIIiiII", 10**6, 0, 0, 54, 40, 60000, 60000, 1, 24, 0, 0, 0, 0, 0, 0
    )
    with pytest.raises(InputError, match="let the camera publish jpeg or png"):
        compressed_array(CompressedImage(format="png", data=header))


def test_compressed_images():
    import cv2

    flat = np.full((16, 16, 3), (200, 100, 30), np.uint8)
    for suffix in ("png", "jpeg"):
        data = cv2.imencode(f".{suffix}", flat[..., ::-1])[1].tobytes()
        decoded = compressed_array(CompressedImage(format=suffix, data=data))
        assert np.abs(decoded.astype(int) - flat).max() <= 3
    for data in (b"", b"no image"):
        with pytest.raises(InputError, match="let the camera publish jpeg or png"):
            compressed_array(CompressedImage(format="jpeg", data=data))


def test_a_closed_window_says_how_much_to_wait_for():
    counts = Counts(frames=8, event_images=5, events=1_234_567, lost_packets=3, late_events=4, late_frames=5)
    message = closed_message(5_000_000_000, counts)
    assert to_ns(message.stamp) == 5_000_000_000
    assert message.frame_id == (
        "frames:8 event_images:5 events:1234567 lost_packets:3 late_events:4 late_frames:5"
    )
    assert closed_counts(message) == counts
    for foreign in ("map", "frames:8 event_images:5", f"{message.frame_id} more"):
        message.frame_id = foreign
        with pytest.raises(InputError, match=f"announces '{foreign}'"):
            closed_counts(message)
