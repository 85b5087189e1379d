"""The size of a JPEG or PNG, told without reading more of it than that."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zlib

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from crossspec_ros.events.encoded_images import encoded_size, only_pixels

PICTURE = np.random.default_rng(5).integers(0, 255, (24, 40, 3), np.uint8)


def encoded(suffix, *options):
    return cv2.imencode(suffix, PICTURE, options)[1].tobytes()


SAMPLES = (
    encoded(".jpg"),
    encoded(".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, 1, cv2.IMWRITE_JPEG_RST_INTERVAL, 1),
    encoded(".png"),
)


def exif(entries, tag, size):
    """A little TIFF whose entries all say that they hold the whole of it."""
    head = b"II*\0" + struct.pack("<IH", 8, entries)
    table = b"".join(struct.pack("<HHII", tag or i + 1, 7, size - 8, 4) for i in range(entries))
    return (head + table + bytes(4)).ljust(size, b"\0")


def with_segments(body, marker=b"\xff\xe1", head=b"Exif\0\0"):
    parts = [head + body[at : at + 65_000] for at in range(0, len(body), 65_000)]
    segments = b"".join(marker + struct.pack(">H", len(part) + 2) + part for part in parts)
    # In place of the JFIF segment, whose resolution would be enough for PIL.
    return SAMPLES[0][:2] + segments + SAMPLES[0][20:]


def with_chunks(*chunks):
    made = b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )
    return SAMPLES[2][:33] + made + SAMPLES[2][33:]


def opened(data):
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)


@pytest.mark.parametrize(
    "data",
    [
        *SAMPLES,
        with_segments(exif(10, 0, 1000)),
        SAMPLES[0][:2] + b"junk\xff\xff\xff\0" + SAMPLES[0][2:],
        with_chunks((b"tEXt", b"of\0whom")),
    ],
)
def test_the_size_is_that_of_the_picture(data):
    assert encoded_size(data) == (40, 24)
    assert np.array_equal(opened(only_pixels(data)), opened(data))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SAMPLES), st.integers(0, 2**32 - 1))
def test_no_picture_is_larger_than_its_header_was_taken_to_say(sample, seed):
    picture, rng = bytearray(sample), np.random.default_rng(seed)
    for at in rng.integers(0, min(len(picture), 200), rng.integers(1, 5)).tolist():
        if rng.random() < 0.5:
            picture[at] = rng.choice([0, 0xFF, 0xC0, 0xC2, 0xD0, 0xD8, 0xDA, at])
        else:
            picture[at:at] = rng.bytes(rng.integers(20))
    size = encoded_size(bytes(picture))
    if size is not None and size[0] * size[1] < 1 << 20:
        image = opened(only_pixels(bytes(picture)))
        assert image is None or image.shape[1::-1] == size


def test_what_is_beside_the_pixels_costs_nothing():
    """PIL took 317 MB for the first, libpng 6 s for the last: minutes here where a bound is gone."""
    bombs = (
        with_segments(exif(5000, 0, 200_000)),
        with_segments(b"\xff" * 600_000, b"", b""),
        SAMPLES[0][:2] + b"\xff\xe5\0\2" * 100_000 + SAMPLES[0][2:],
        SAMPLES[0][:2] + b"\xff" * 30_000_000,
        SAMPLES[0][:2] + b"\xff\0" * 15_000_000,
        SAMPLES[0][:2] + (b"\xff" * 1000 + b"\0") * 1000 + SAMPLES[0][2:],
        with_chunks(*[(b"PLTE", bytes(6)), (b"tRNS", bytes(6))] * 1000),
        SAMPLES[2][:33] + (struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))) * 110_000,
        with_chunks((b"eXIf", exif(30_000, 0x10E, 400_000))),
        with_chunks(*200 * [(b"zTXt", b"a\0\0" + zlib.compress(bytes(7_000_000)))]),
    )
    tracemalloc.start()
    for bomb in bombs:
        encoded_size(bomb)
        assert len(only_pixels(bomb)) < len(bomb) or not bomb.startswith(b"\x89PNG")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 << 20


@pytest.mark.parametrize("kind", [b"IDAT", b"PLTE", b"eXIf"])
def test_a_part_that_says_more_than_there_is_ends_a_png(kind):
    """OpenCV took 4 GB for it."""
    long = SAMPLES[2][:33] + struct.pack(">I", 0xFFFFFFFF) + kind + SAMPLES[2][41:]
    assert encoded_size(long) == (40, 24) and only_pixels(long) == SAMPLES[2][:33]
    assert opened(only_pixels(long)) is None


@pytest.mark.parametrize("suffix", ["jpeg", "png"])
def test_the_orientation_stays(suffix):
    file = io.BytesIO()
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(PICTURE).save(file, suffix, exif=turned)
    image = cv2.imdecode(np.frombuffer(only_pixels(file.getvalue()), np.uint8), cv2.IMREAD_COLOR)
    assert image.shape == (40, 24, 3)


def test_arithmetic_coding_is_not_read():
    """In 20 s of it, 100 empty scans go over 50 million pixels."""
    assert encoded_size(SAMPLES[1]) == (40, 24)
    assert encoded_size(SAMPLES[1].replace(b"\xff\xc2", b"\xff\xca", 1)) is None


@pytest.mark.parametrize("data", [b"", b"\xff\xd8", SAMPLES[0][:2] + b"\xff\xc0\0\x11", SAMPLES[2][:20]])
def test_what_is_cut_has_no_size(data):
    assert encoded_size(data) is None
