"""JPEG and PNG images that unsound messages carry."""

from __future__ import annotations

import struct
import zlib

import cv2
import numpy as np

_SIZES = ((85, 64), (1, 150), (3000, 3000))


def pictures() -> list[bytes]:
    """Black images of all shapes, and four that say, or have, much beside their pixels."""
    coded = [
        cv2.imencode(suffix, np.zeros((height, width, 3), np.uint8))[1].tobytes()
        for suffix in (".jpg", ".png")
        for width, height in _SIZES
    ]
    filled = coded[0][:2] + b"\xff" * 200_000 + b"\0" + coded[0][2:]
    png = coded[len(_SIZES)]
    long = png[:33] + b"\x7f\xff\xff\xff" + png[37:]
    return [*coded, filled, long, _with_exif(coded[0]), _with_texts(png)]


def _with_exif(jpeg: bytes) -> bytes:
    """Its entries all say that they hold the whole of it; it takes the place of the JFIF segment."""
    size, entries = 200_000, 10_000
    table = b"".join(struct.pack("<HHII", 1 + i, 7, size - 8, 4) for i in range(entries))
    exif = (b"II*\0" + struct.pack("<IH", 8, entries) + table).ljust(size, b"\0")
    parts = [b"Exif\0\0" + exif[at : at + 65_000] for at in range(0, size, 65_000)]
    segments = b"".join(b"\xff\xe1" + struct.pack(">H", 2 + len(part)) + part for part in parts)
    return jpeg[:2] + segments + jpeg[20:]


def _with_texts(png: bytes) -> bytes:
    body = b"zTXta\0\0" + zlib.compress(bytes(7_000_000), 9)
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    return png[:33] + 20 * chunk + png[33:]
