"""Which stamps may move time: what one message says alone, and what a stream says that has ended since."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from crossspec_ros.events.stamps import BACKWARD_JUMP_NS
from crossspec_ros.windows.grid import SECOND

ALONE_NS = 3 * SECOND
"""A stream that goes on alone for longer is not shut out by what the other one said last."""

T = TypeVar("T")


@dataclass(frozen=True)
class Held(Generic[T]):
    """A message whose stamp only others can confirm.

    It has so many data, which `take` takes, and its stream had come to `before_ns`. With `is_silence` it only
    says that its stream has come so far.
    """

    stamp_ns: int
    count: int
    take: Callable[[], Iterator[T]]
    before_ns: int | None
    is_silence: bool = False

    def is_confirmed(self, stamp_ns: int) -> bool:
        """Whether the next stamp of the same stream is where this one is, and not where it was before."""
        if self.confirms_silence(stamp_ns):
            return True
        if self.before_ns is None or self.stamp_ns > self.before_ns:
            return stamp_ns >= self.stamp_ns - BACKWARD_JUMP_NS
        return stamp_ns < self.before_ns - BACKWARD_JUMP_NS

    def confirms_silence(self, stamp_ns: int) -> bool:
        """Whether this is a player's sign that it begins again there, as a stamp of either stream shows."""
        return self.is_silence and abs(stamp_ns - self.stamp_ns) <= BACKWARD_JUMP_NS


class LoneStream:
    """Knows which stream goes on while the other says nothing new, and since when by its own stamps."""

    def __init__(self) -> None:
        self._stamps: dict[str, int] = {}
        self._stream, self._since_ns = "", 0

    def hear(self, stream: str, stamp_ns: int) -> None:
        """Take the stamp of any message of a stream."""
        # A clock that stands still tells of no time.
        if stamp_ns == self._stamps.get(stream):
            return
        self._stamps[stream] = stamp_ns
        if stream != self._stream or stamp_ns < self._since_ns:
            self._stream, self._since_ns = stream, stamp_ns

    def is_alone(self, stream: str, stamp_ns: int) -> bool:
        """Whether the other stream has said nothing new for seconds of this one's."""
        return stream == self._stream and stamp_ns - self._since_ns > ALONE_NS
