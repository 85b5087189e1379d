"""A camera's image becomes RGB whatever its encoding, or a sentence that names what is wrong with it."""

from __future__ import annotations

import io
import struct
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from PIL import Image

from crossspec_ros.errors import InputError
from crossspec_ros.recordings.camera_images import camera_array, compressed_array

RGB = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)


def camera(encoding, pixels):
    """An Image of pixels (H, W) or (H, W, channels) of any type, as rosbags and rclpy give it."""
    return SimpleNamespace(
        encoding=encoding,
        height=pixels.shape[0],
        width=pixels.shape[1],
        step=pixels.nbytes // pixels.shape[0],
        is_bigendian=0,
        data=pixels.tobytes(),
    )


def test_rows_may_be_padded():
    message = camera("rgb8", RGB)
    message.step, message.data = 32, np.pad(RGB.reshape(6, 24), ((0, 0), (0, 8))).tobytes()
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
    with pytest.raises(InputError, match="an image "):
        camera_array(message)


def test_an_image_that_opencv_refuses_is_a_sentence():
    with pytest.raises(InputError, match="3x4 in yuv422 cannot be converted"):
        camera_array(camera("yuv422", np.zeros((4, 3, 2), np.uint8)))
    # A bitmap that claims 60000x60000 pixels.
    header = b"BM" + struct.pack(
        "<IHHIIiiHHIIiiII", 10**6, 0, 0, 54, 40, 60000, 60000, 1, 24, 0, 0, 0, 0, 0, 0
    )
    with pytest.raises(InputError, match="let the camera publish smaller images"):
        compressed_array(SimpleNamespace(format="png", data=header))


def test_compressed_images():
    flat = np.full((16, 16, 3), (200, 100, 30), np.uint8)
    for suffix in ("png", "jpeg"):
        data = cv2.imencode(f".{suffix}", flat[..., ::-1])[1].tobytes()
        decoded = compressed_array(SimpleNamespace(format=suffix, data=data))
        assert np.abs(decoded.astype(int) - flat).max() <= 3
    for data in (b"", b"no image"):
        with pytest.raises(InputError, match="let the camera publish jpeg or png"):
            compressed_array(SimpleNamespace(format="jpeg", data=data))


@pytest.mark.parametrize("size", [(16_000, 16_000), (9000, 9000), (20_000, 1)])
def test_a_small_file_of_a_huge_image_is_refused_before_it_is_decoded(monkeypatch, size):
    monkeypatch.setattr(cv2, "imdecode", lambda *args: pytest.fail("decoded"))
    file = io.BytesIO()
    Image.new("1", size).save(file, "PNG")
    message = SimpleNamespace(format="png", data=file.getvalue())
    with pytest.raises(InputError, match=r"\d+"):
        compressed_array(message)
    with pytest.raises(InputError, match="long as wide"):
        camera_array(camera("mono8", np.zeros((1, 33), np.uint8)))
