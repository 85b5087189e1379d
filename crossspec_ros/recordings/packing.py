"""Parts of bags that are packed with zstd, lz4 or bz2."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ("Decompressor", "unpack", "unpack_cut", "zstd")


class Decompressor(Protocol):
    """Decompressor as in `bz2`, `lz4.frame` and `zstd`."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes | None: ...

    def decompress(self, data: bytes | memoryview, max_length: int = -1) -> bytes: ...


def unpack(data: bytes | memoryview, decompressor: Callable[[], Decompressor]) -> bytes:
    """All that is packed in `data`, one part behind the other.

    Raises EOFError where a part has no end, and what the decompressor raises.
    """
    parts: list[bytes] = []
    while data:
        one = decompressor()
        parts.append(one.decompress(data))
        if not one.eof:
            raise EOFError("what is packed has no end")
        data = one.unused_data or b""
    return b"".join(parts)


def unpack_cut(data: bytes | memoryview, decompressor: Callable[[], Decompressor]) -> bytes:
    """Bytes of a part that may be cut; raises what the decompressor does."""
    return decompressor().decompress(data)
