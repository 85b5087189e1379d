"""JPEG and PNG images from anybody: their size before they are decoded, and no more of them than pixels need.

PIL would read sizes, too, but unpacks what else there is: the Exif of a JPEG of 250 kB took it 5 GB.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from crossspec_ros.errors import InputError

_JPEG = b"\xff\xd8"
_PNG = b"\x89PNG\r\n\x1a\n"
_SCAN = b"\xff\xda"
_MOST_SCANS = 30
_MARKER = re.compile(rb"\xff([^\xff\0])")
"""As libjpeg looks for it: over whatever lies before it. With a + it takes a minute for 100 kB of \xff."""
_MOST_BETWEEN = 4096
"""Bytes that are looked over for a marker; one search holds Python's lock and took 5 s for 150 MB."""
_ALONE = frozenset([0x01, *range(0xD0, 0xD8)])
"""Markers without a length."""
_FRAME = frozenset([0xC0, 0xC1, 0xC2])
"""Markers of a frame, which has the size. Of arithmetic coding, which no camera writes, there are others: an
empty scan takes time there."""
_ENDS = frozenset([0xD8, 0xD9, 0xDA, *range(0xC3, 0xD0)]) - {0xC4, 0xCC}
_MOST_SEGMENTS = 4096
"""Before the frame; colour profiles and maps of depth take up to some hundred."""
_MOST_CHUNKS = 100_000
"""Most parts of a PNG; an image as large as may be has some 20,000 of the usual 8 kB."""
_MOST_EXIF = 1 << 16
"""Bytes, as in a JPEG; for each of its entries OpenCV may copy all of them."""


def encoded_size(data: bytes) -> tuple[int, int] | None:
    """Width and height from the header of a JPEG or PNG, which is not decoded; None where it is neither.

    Raises InputError for a JPEG that would take minutes.
    """
    if data.startswith(_PNG):
        return struct.unpack(">II", data[16:24]) if data[12:16] == b"IHDR" and len(data) >= 24 else None
    if not data.startswith(_JPEG):
        return None
    # Empty scans of a few bytes each go over all of the image; cameras write up to some ten.
    if (scans := data.count(_SCAN)) > _MOST_SCANS:
        raise InputError(
            f"a compressed image has {scans} scans, more than the {_MOST_SCANS} that are taken: let the "
            f"camera publish baseline jpeg"
        )
    return _jpeg_size(data)


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = len(_JPEG)
    for _ in range(_MOST_SEGMENTS):
        marker = _MARKER.search(data, at, at + _MOST_BETWEEN)
        if marker is None or (kind := marker[1][0]) in _ENDS:
            return None
        at = marker.end()
        if kind in _ALONE:
            continue
        head = data[at : at + 7]
        if kind in _FRAME:
            if len(head) < 7:
                return None
            height, width = struct.unpack(">3xHH", head)
            return width, height
        at += max(2, int.from_bytes(head[:2], "big"))
    return None


def only_pixels(data: bytes) -> bytes:
    """A PNG without texts and profiles, which take libpng seconds to unpack, and up to where it is cut;
    anything else as it is.
    """
    return _PNG + b"".join(_pixel_chunks(data)) if data.startswith(_PNG) else data


def _pixel_chunks(data: bytes) -> Iterator[bytes]:
    at, seen = len(_PNG), set[bytes]()
    for _ in range(_MOST_CHUNKS):
        size, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        end = at + 12 + size
        # OpenCV makes room for what a part says it has, up to 4 GB.
        if at == len(data) or end > len(data):
            return
        # Those that pixels need are in capitals; the orientation is in Exif.
        is_needed = kind[:1].isupper() or kind == b"tRNS" or (kind == b"eXIf" and size <= _MOST_EXIF)
        # Of all but the pixels there is one; libpng writes a line about each more.
        if is_needed and (kind == b"IDAT" or kind not in seen):
            yield data[at:end]
            seen.add(kind)
        at = end
