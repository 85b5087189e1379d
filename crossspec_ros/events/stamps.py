"""The streams of a recording in one order, whatever their stamps do: strays, gaps, clocks that were set."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from crossspec_ros.events.messages import RecordedMessage

BACKWARD_JUMP_NS = 1_000_000_000
"""A stream that falls back farther starts anew; less is disorder."""
FORWARD_JUMP_NS = 10_000_000_000
"""Data that are farther apart have nothing to do with each other: a gap that is skipped."""
STRAY_NS = 2_000_000_000
"""A stamp that is farther ahead needs another one to be believed."""

T = TypeVar("T")


class Judged(NamedTuple, Generic[T]):
    """Something with a stamp, and whether that stamp is a stray."""

    item: T
    stamp_ns: int
    is_stray: bool


class StrayFinder(Generic[T]):
    """Finds the stamps of one stream that jump away from those before, which those behind do not follow.

    A node that stamps one message with zero, or with another clock, must not move time. A jump that the next
    stamp confirms is none of these: a clock was set, or the recording has a gap.
    """

    def __init__(self) -> None:
        self._last_ns: int | None = None
        # How far behind the others a stream's very last stamp may be: a slow camera's are all far apart.
        self._reach_ns = FORWARD_JUMP_NS
        # One that needs the next to be judged by; two at the start, where there is nothing before.
        self._open: list[tuple[T, int]] = []

    def add(self, item: T, stamp_ns: int) -> list[Judged[T]]:
        """Take the next of the stream; returns what can be judged now, in order."""
        self._open.append((item, stamp_ns))
        return self._judge(final=False)

    def finish(self) -> list[Judged[T]]:
        """The rest, once nothing follows."""
        return self._judge(final=True)

    def _judge(self, final: bool) -> list[Judged[T]]:
        judged: list[Judged[T]] = []
        while self._open:
            stamps = [stamp_ns for _, stamp_ns in self._open]
            if self._last_ns is None:
                is_stray = _is_first_stray(stamps, final)
            else:
                is_stray = self._is_stray(self._last_ns, stamps, final)
            if is_stray is None:
                break
            item, stamp_ns = self._open.pop(0)
            if not is_stray:
                if self._last_ns is not None:
                    self._reach_ns = max(self._reach_ns, 2 * (stamp_ns - self._last_ns))
                self._last_ns = stamp_ns
            judged.append(Judged(item, stamp_ns, is_stray))
        return judged

    def _is_stray(self, last_ns: int, stamps: list[int], final: bool) -> bool | None:
        """Whether the first of `stamps` is one; None when only the next can tell."""
        stamp_ns = stamps[0]
        if last_ns - BACKWARD_JUMP_NS <= stamp_ns <= last_ns + STRAY_NS:
            return False
        if len(stamps) > 1:
            is_ahead, next_ns = stamp_ns > last_ns, stamps[1]
            # Behind a jump back, the next may be anywhere before the jump.
            returns = next_ns < stamp_ns - BACKWARD_JUMP_NS if is_ahead else True
            return returns and next_ns >= last_ns - BACKWARD_JUMP_NS
        return not last_ns <= stamp_ns <= last_ns + self._reach_ns if final else None


def _is_first_stray(stamps: list[int], final: bool) -> bool | None:
    """Likewise with nothing before: the third tells which of two that are far apart is odd."""
    if len(stamps) > 1 and _follows(stamps[1], stamps[0]):
        return False
    if len(stamps) > 2:
        return _follows(stamps[2], stamps[1]) and not _follows(stamps[2], stamps[0])
    return False if final else None


def _follows(stamp_ns: int, before_ns: int) -> bool:
    return -BACKWARD_JUMP_NS <= stamp_ns - before_ns <= FORWARD_JUMP_NS


def merged(*streams: Iterable[RecordedMessage]) -> Iterator[RecordedMessage]:
    """The messages of all streams by their stamps; each stream keeps its order.

    A message with a stray stamp keeps its place in its stream and is marked as `stray`. When streams fall
    back, because a clock was set, what each of them had before comes first.
    """
    for _, message in heapq.merge(*map(_keyed, streams), key=lambda keyed: keyed[0]):
        yield message


def _keyed(stream: Iterable[RecordedMessage]) -> Iterator[tuple[tuple[int, int], RecordedMessage]]:
    falls, last_ns = 0, None
    for message, stamp_ns, is_stray in _judged(stream):
        if is_stray:
            yield (falls, stamp_ns if last_ns is None else last_ns), message._replace(stray=True)
            continue
        if last_ns is not None and stamp_ns < last_ns - BACKWARD_JUMP_NS:
            falls += 1
        last_ns = stamp_ns
        yield (falls, stamp_ns), message


def _judged(stream: Iterable[RecordedMessage]) -> Iterator[Judged[RecordedMessage]]:
    finder = StrayFinder[RecordedMessage]()
    for message in stream:
        yield from finder.add(message, message.stamp_ns)
    yield from finder.finish()


class Break(NamedTuple):
    """Behind the message stamped `last_ns` the stamps jump to `next_ns`, or the recording ends."""

    last_ns: int
    next_ns: int | None


def parts(messages: Iterable[RecordedMessage], end_ns: int) -> Iterator[RecordedMessage | Break]:
    """The messages, with a Break wherever nothing of what follows belongs to a window before.

    The recording ends at `end_ns`: packets are stamped with their first event.
    """
    reached_ns: int | None = None
    fell_back = False
    for message in messages:
        if not message.stray:
            if reached_ns is not None and not _follows(message.stamp_ns, reached_ns):
                yield Break(reached_ns, message.stamp_ns)
                fell_back |= message.stamp_ns < reached_ns
                reached_ns = None
            reached_ns = message.stamp_ns if reached_ns is None else max(reached_ns, message.stamp_ns)
        yield message
    if reached_ns is not None:
        # Unless that is a stray, or from before a clock was set.
        is_near = reached_ns < end_ns <= reached_ns + STRAY_NS
        yield Break(end_ns if is_near and not fell_back else reached_ns, None)
