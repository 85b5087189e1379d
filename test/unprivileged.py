"""Drop the privilege of root to read all files, for tests of unreadable files."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from contextlib import contextmanager

_VERSION = 0x20080522
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1 << 1, 1 << 2


@contextmanager
def unprivileged() -> Iterator[None]:
    """Make the modes of files apply to this thread, even for root."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("Ii", _VERSION, 0)
    before = ctypes.create_string_buffer(24)
    assert libc.capget(header, before) == 0
    effective, *rest = struct.unpack("6I", before.raw)
    less = struct.pack("6I", effective & ~(_DAC_OVERRIDE | _DAC_READ_SEARCH), *rest)
    assert libc.capset(header, less) == 0
    try:
        yield
    finally:
        assert libc.capset(header, before) == 0
