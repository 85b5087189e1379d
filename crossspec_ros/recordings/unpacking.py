"""How much may come out of a few bytes of anybody's file: packed ones, and those a disk keeps as holes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

from crossspec_ros.errors import InputError
from crossspec_ros.files import written_bytes

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MOST_UNPACKED = 96 << 20
"""Bytes of one chunk or message of a bag; recorders make chunks of some MB."""
MOST_PICTURES = 2 << 30
"""Bytes of pictures that may come out of any file: black ones, as behind a lens cap, pack to a thousandth."""
MOST_EVENTS = 32 << 20
"""Bytes of event messages that may, of which two can be twelve events."""
_ALWAYS, MOST_TIMES = 32 << 20, 100
"""So many bytes may come out of any file, and of large ones so many times its own. Events pack to a tenth."""
_ALWAYS_TOGETHER = 512 << 20
"""Of all packed files of a folder, which are unpacked at once."""

_HELD, _HELD_TIMES = 256 << 20, 20
"""Of what is not read a part at a time: events have 32 bytes there, and pack to two or more."""
_MOST_FRAMES = 100
"""Of what is packed, one behind the other; recorders write one, and what follows is copied for each."""


class TooLarge(ValueError):
    """What is packed unpacks to more than is read; the message says so of a file, from its verb on."""


class Decompressor(Protocol):
    """As in `bz2`, `lz4.frame` and `zstd`."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes | None: ...

    def decompress(self, data: bytes | memoryview, max_length: int) -> bytes: ...


def most_of(packed: int, always: int = _ALWAYS) -> int:
    """Bytes that may come out of so many: `always` so many, or more."""
    return max(always, MOST_TIMES * packed)


def check_ratio(path: Path, packed: int, unpacked: int, always: int = _ALWAYS) -> None:
    """Raise InputError where `packed` bytes of a file stand for absurdly many, and for more than `always`."""
    if unpacked > most_of(packed, always):
        raise _absurd(path, unpacked, MOST_TIMES)


def check_held(path: Path, size: int) -> None:
    """Raise InputError where so many bytes, all of them in memory at a time, are absurdly many for a file."""
    # Only then, because each hole of the file costs a call.
    if size > _HELD and size > _HELD_TIMES * written_bytes(path, size // _HELD_TIMES + 1):
        raise _absurd(path, size, _HELD_TIMES)


def _absurd(path: Path, unpacked: int, times: int) -> InputError:
    return InputError(
        f"'{path}' unpacks to {unpacked >> 20} MB, more than {times} times its size, as no recording does: "
        f"check where it comes from, and record it again"
    )


def check_part(size: int) -> None:
    """Raise TooLarge for a chunk or message of so many bytes, packed or not."""
    if size > MOST_UNPACKED:
        raise TooLarge(
            f"has a part that unpacks to more than {MOST_UNPACKED >> 20} MB: record it again with "
            f"smaller chunks and messages"
        )


def check_solid(path: Path) -> None:
    """Raise InputError for what is no regular file and may have no end, and for a large file of which nearly
    all was never written; reading takes it for zeros."""
    if path.exists() and not path.is_file():
        raise InputError(
            f"'{path}' is a pipe, a device or a folder in place of a file: copy what is in it to a file"
        )
    size = path.stat().st_size
    if size > _ALWAYS:
        check_ratio(path, written_bytes(path, size // MOST_TIMES + 1), size)


def unpack(data: bytes | memoryview, decompressor: Callable[[], Decompressor]) -> bytes:
    """All that is packed in `data`, one part behind the other.

    Raises TooLarge for more than `MOST_UNPACKED` bytes or very many parts, EOFError where a part has no end,
    and what the decompressor raises.
    """
    parts: list[bytes] = []
    room = MOST_UNPACKED
    while data:
        one = decompressor()
        parts.append(one.decompress(data, room + 1))
        room -= len(parts[-1])
        check_part(MOST_UNPACKED - room)
        if len(parts) > _MOST_FRAMES:
            raise TooLarge(
                f"has a part that is packed in more than {_MOST_FRAMES} pieces, as no recorder does: check "
                f"where it comes from, and record it again"
            )
        if not one.eof:
            raise EOFError("what is packed has no end")
        data = one.unused_data or b""
    return b"".join(parts)


class _Counted:
    """A file of which only so many bytes are read."""

    def __init__(self, file: zstd.ZstdFile, most: int) -> None:
        self._file, self._left = file, most

    def read(self, size: int = 1 << 20) -> bytes:
        data = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise TooLarge(
                f"unpacks to more than {MOST_TIMES} times its size, as no recording does: unpack it with "
                f"`zstd -d` where you trust it"
            )
        return data


@contextmanager
def open_zstd(packed: IO[bytes], mode: str = "rb") -> Iterator[Any]:
    """A file of a bag packed with zstd, to read; that raises TooLarge where absurdly much comes out of it."""
    size, files = os.fstat(packed.fileno()).st_size, len(os.listdir(Path(packed.name).parent))
    with zstd.open(packed, "rb") as file:
        yield _Counted(file, most_of(size, min(_ALWAYS, _ALWAYS_TOGETHER // files)))
