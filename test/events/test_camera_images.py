"""Camera images of every encoding become RGB, and invalid ones are refused with their fault."""

from __future__ import annotations

import io
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from PIL import Image
from refusals import refused

from crossspec_ros.events.camera_images import camera_array, compressed_array

RGB = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)


def camera(encoding, pixels):
    """Return an Image of pixels (H, W) or (H, W, channels) of any type, as rosbags and rclpy give it."""
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


def test_what_pads_rows_is_not_kept():
    """A node that counts the bytes of its images would hold more than it counts."""
    message = camera("rgb8", RGB[:1, :1])
    message.step, message.data = 1_000_000, bytes(1_000_000)
    assert not np.shares_memory(camera_array(message), np.frombuffer(message.data, np.uint8))


GREY = RGB[..., 0]
GREY_RGB = np.repeat(GREY[..., None], 3, 2)


@pytest.mark.parametrize(
    ("encoding", "pixels", "expected"),
    [
        ("rgb8", RGB, RGB),
        ("bgr8", RGB[..., ::-1], RGB),
        ("rgba8", np.concatenate([RGB, RGB[..., :1]], 2), RGB),
        ("mono8", GREY, GREY_RGB),
        # OpenCV's types without a meaning are grey or in its order of colours.
        ("8UC1", GREY, GREY_RGB),
        ("8UC3", RGB[..., ::-1], RGB),
        ("8UC4", np.concatenate([RGB[..., ::-1], RGB[..., :1]], 2), RGB),
    ],
)
def test_the_common_camera_encodings_become_rgb(encoding, pixels, expected):
    np.testing.assert_array_equal(camera_array(camera(encoding, pixels)), expected)


@pytest.mark.parametrize("pattern", ["rggb", "bggr", "gbrg", "grbg"])
def test_bayer_image_keeps_its_colour(pattern):
    colour = dict(r=200, g=100, b=30)
    tile = np.array([colour[letter] for letter in pattern], np.uint8).reshape(2, 2)
    rgb = camera_array(camera(f"bayer_{pattern}8", np.tile(tile, (8, 8))))
    assert rgb[8, 8].tolist() == [200, 100, 30]


@pytest.mark.parametrize("name", ["rgb", "bgr", "rgba", "bgra", "mono", "bayer_rggb", "bayer_grbg"])
@pytest.mark.parametrize("order", "<>")
def test_of_16_bits_the_upper_8_count(name, order):
    channels = {"rgb": 3, "bgr": 3, "rgba": 4, "bgra": 4}.get(name, 1)
    deep = np.random.default_rng(1).integers(0, 1 << 16, (6, 8, channels), np.uint16)
    message = camera(f"{name}16", deep.astype(f"{order}u2"))
    message.is_bigendian = order == ">"
    expected = camera_array(camera(f"{name}8", (deep >> 8).astype(np.uint8)))
    np.testing.assert_array_equal(camera_array(message), expected)


@pytest.mark.parametrize("encoding", ["nv12", "nv21", "uyvy", "yuv422_yuy2", "yuyv"])
@pytest.mark.parametrize("step", [32, 48, 40])
def test_yuv_of_one_colour_becomes_that_colour(encoding, step):
    """`step` of the planar ones is a row of Y, counts both planes, or has padding."""
    colour = np.full((16, 32, 3), (200, 60, 30), np.uint8)
    # BT.601 in video range, which is what these encodings carry.
    r, g, b = colour[0, 0].astype(float) / 255
    y, u, v = (
        16 + 65.481 * r + 128.553 * g + 24.966 * b,
        128 - 37.797 * r - 74.203 * g + 112 * b,
        128 + 112 * r - 93.786 * g - 18.214 * b,
    )
    if encoding.startswith("nv"):
        stride = 40 if step == 40 else 32
        chroma = (u, v) if encoding == "nv12" else (v, u)
        planes = np.vstack([np.full((16, stride), y), np.tile(chroma, (8, stride // 2))])
        message = SimpleNamespace(
            encoding=encoding, height=16, width=32, step=step, is_bigendian=0,
            data=planes.round().astype(np.uint8).tobytes(),
        )  # fmt: skip
    else:
        pair = [u, y, v, y] if encoding == "uyvy" else [y, u, y, v]
        message = camera(encoding, np.tile(pair, (16, 16)).reshape(16, 32, 2).round().astype(np.uint8))
    assert np.abs(camera_array(message).astype(int) - colour).max() <= 3


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        *((dict(encoding=encoding), "image-encoding") for encoding in ("16UC3", "nv24", "8UC2")),
        *((dict(encoding=encoding), "image-depth") for encoding in ("16UC1", "32FC1")),
        (dict(encoding="BGR8"), "image-capitals"),
        (dict(data=bytes(7)), "image-short"),
        (dict(height=900), "image-too-high"),
        (dict(encoding="nv12", height=900), "image-nv12-too-high"),
        (dict(encoding="yuv422", width=3, step=24), "image-yuv422-odd"),
        (dict(encoding="mono8", width=201, height=1, step=201, data=bytes(201)), "image-too-long"),
    ],
)
def test_a_broken_image_is_a_sentence(damage, code):
    message = camera("rgb8", RGB)
    vars(message).update(damage)
    with refused(code, library_text=code == "image-yuv422-odd", encoding=f"'{message.encoding}'"):
        camera_array(message)


def test_compressed_images():
    flat = np.full((16, 16, 3), (200, 100, 30), np.uint8)
    for suffix in ("png", "jpeg"):
        data = cv2.imencode(f".{suffix}", flat[..., ::-1])[1].tobytes()
        decoded = compressed_array(SimpleNamespace(format=suffix, data=data))
        assert np.abs(decoded.astype(int) - flat).max() <= 3
    # OpenCV would read a TIFF too, and see another size than was checked.
    tiff = cv2.imencode(".tiff", flat)[1].tobytes()
    for data in (b"", b"no image", tiff):
        with refused("image-compressed-unreadable", size=len(data)):
            compressed_array(SimpleNamespace(format="jpeg", data=data))


@pytest.mark.parametrize("pattern", ["rggb", "bggr", "gbrg", "grbg"])
@pytest.mark.parametrize(("suffix", "bits"), [("png", 8), ("png", 16), ("jpeg", 8)])
def test_compressed_mosaics_are_demosaiced(pattern, suffix, bits):
    """Field case 01: image_transport compresses a Bayer topic as it is, and names it in the format."""
    colour = dict(r=200, g=100, b=30)
    tile = np.array([colour[letter] for letter in pattern], np.uint8).reshape(2, 2)
    mosaic = np.tile(tile, (16, 16)).astype(np.uint16) << (bits - 8)
    samples = mosaic.astype(np.uint8 if bits == 8 else np.uint16)
    data = cv2.imencode(f".{suffix}", samples, [cv2.IMWRITE_JPEG_QUALITY, 100])[1].tobytes()
    message = SimpleNamespace(format=f"bayer_{pattern}{bits}; {suffix} compressed ", data=data)
    assert np.abs(compressed_array(message)[16, 16].astype(int) - [200, 100, 30]).max() <= 12


def test_compressed_colours_of_a_bayer_topic_stay():
    """Newer versions of image_transport demosaic before they compress."""
    data = cv2.imencode(".png", RGB[..., ::-1])[1].tobytes()
    message = SimpleNamespace(format="bayer_rggb8; png compressed bgr8", data=data)
    np.testing.assert_array_equal(compressed_array(message), RGB)


@pytest.mark.parametrize(("size", "code"), [((9000, 9000), "png-too-large"), ((20_000, 1), "png-too-long")])
def test_huge_images_are_refused_before_decoding(monkeypatch, size, code):
    monkeypatch.setattr(cv2, "imdecode", lambda *args: pytest.fail("decoded"))
    file = io.BytesIO()
    Image.new("1", size).save(file, "PNG")
    message = SimpleNamespace(format="png", data=file.getvalue())
    with refused(code):
        compressed_array(message)
