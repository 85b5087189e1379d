"""Parts that the files of all bags have in common: channels, messages, packed bytes, and losses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple, Protocol

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = (
    "ZSTD_MAGIC",
    "Channel",
    "Decompressor",
    "Losses",
    "StoredMessage",
    "TopicKey",
    "unpack",
    "unpack_cut",
    "zstd",
)

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
"""No CDR message starts like this; in a bag that packs its messages one by one, each does."""
_TOLD_LOSSES = 5


class TopicKey(NamedTuple):
    """A topic's name and its type, as in `sensor_msgs/msg/Image`: two types may share a name."""

    topic: str
    type: str


class StoredMessage(NamedTuple):
    """One message of a bag: where it belongs, the time it was recorded, its CDR bytes."""

    topic: str
    type: str
    recorded_ns: int
    data: bytes


class Channel(NamedTuple):
    """A topic as one file of a bag describes it."""

    number: int
    topic: str
    type: str
    encoding: str
    """Serialization of its messages, "cdr" or "ros1"."""
    definition: str = ""
    """Definition of its type in ROS' own language, where the file has one."""
    md5: str = ""
    messages: int = 0

    @property
    def key(self) -> TopicKey:
        """Name and type to choose by: a type of no encoding that is read is none that is played."""
        foreign = "" if self.encoding in ("cdr", "ros1") else f" in {self.encoding or 'no encoding'}"
        return TopicKey(self.topic, f"{self.type or 'no type'}{foreign}")


class Losses:
    """Phrases about what cannot be read: only the first are kept, for there may be a million."""

    def __init__(self) -> None:
        self._first: list[str] = []
        self._more = 0

    def append(self, loss: str) -> None:
        if len(self._first) < _TOLD_LOSSES:
            self._first.append(loss)
        else:
            self._more += 1

    def told(self) -> list[str]:
        """The first, and how many more there are."""
        return [*self._first, f"and {self._more} more"] if self._more else self._first


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
