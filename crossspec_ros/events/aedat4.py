"""The frame of an .aedat4 file: a header, packets, and a table of the packets, which a cut file lacks.

https://docs.inivation.com/software/software-advanced-usage/file-formats/aedat-4.0.html
"""

from __future__ import annotations

import re
import shutil
import struct
from pathlib import Path

_MAGIC = b"#!AER-DAT4.0\r\n"
_NO_TABLE = -1
_HEAD = 1 << 16
"""Bytes that hold all of the header but its text."""


_SOURCE = re.compile(rb'key="source" type="string">([^<]{1,80})<')


def cameras(path: Path) -> list[str]:
    """Names of the cameras whose streams are in the file, by its header."""
    return sorted({name.decode(errors="replace") for name in _SOURCE.findall(_read_head(path))})


def has_table(path: Path) -> bool:
    """Whether the header points at a table of packets; raises ValueError when it is no header."""
    head = _read_head(path)
    at = _pointer(head)
    return at is not None and struct.unpack_from("<q", head, at)[0] != _NO_TABLE


def without_table(path: Path, copy: Path) -> Path:
    """A copy whose header says that there is no table, so that readers look for the packets themselves.

    Raises ValueError when the file has no header or one without a table.
    """
    at = _pointer(_read_head(path))
    if at is None:
        raise ValueError("it has no table of packets")
    shutil.copyfile(path, copy)
    with copy.open("r+b") as stream:
        stream.seek(at)
        stream.write(struct.pack("<q", _NO_TABLE))
    return copy


def _read_head(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(_HEAD)


def _pointer(head: bytes) -> int | None:
    """Position of the table, the second field of a flatbuffer; None when that is left out."""
    if not head.startswith(_MAGIC):
        raise ValueError("it does not start as an .aedat4 file")
    start = len(_MAGIC) + 4
    try:
        root = start + struct.unpack_from("<I", head, start)[0]
        fields = root - struct.unpack_from("<i", head, root)[0]
        size, _, _, offset = struct.unpack_from("<4H", head, fields)
        if size < 8 or not offset:
            return None
        struct.unpack_from("<q", head, root + offset)
    except struct.error:
        raise ValueError("its header is damaged") from None
    return root + offset
