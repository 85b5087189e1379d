"""Stamps of recordings: strays, gaps, and clocks that were set.

A node that stamps one message with zero, or with another clock, must not move time. A stamp that is far from
those before it is believed when the next one goes on from there.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import chain, islice, tee
from typing import NamedTuple, TypeVar

from crossspec_ros.events.cdr import RecordedMessage

BACKWARD_JUMP_NS = 1_000_000_000
"""A stream that falls back farther starts anew; less is disorder."""
FORWARD_JUMP_NS = 10_000_000_000
"""Data that are farther apart have nothing to do with each other: a gap that is skipped."""
STRAY_NS = 2_000_000_000
"""A stamp that is farther ahead needs another one to be believed."""

_MAX_EXCURSION_NS = 3_000_000_000
"""Stamps that jump and come back within this time are odd, and not a clock that was set."""
_MAX_RETURN_NS = BACKWARD_JUMP_NS // 2
"""Stamps come back to where they would be without the jump, to within this time."""

T = TypeVar("T")


def follows(stamp_ns: int, before_ns: int) -> bool:
    """Return whether neither a gap nor a jump back lies between two stamps."""
    return -BACKWARD_JUMP_NS <= stamp_ns - before_ns <= FORWARD_JUMP_NS


Judged = tuple[T, int, bool]
"""Something with a stamp in ns, and whether that stamp is a stray."""


def find_strays(stamped: Iterable[tuple[T, int]]) -> Iterator[Judged[T]]:
    """Judge each item of one recorded stream, each with its stamp, by the stamps behind it.

    A jump that the next stamp confirms is no stray: a clock was set, or the recording has a gap. Stamps that
    soon jump back to where they would be otherwise are strays (a camera whose stamps jump to and fro).
    """
    marked, kept = tee(_mark_excursions(stamped))
    others = _find_single_strays((item, stamp_ns) for item, stamp_ns, is_odd in kept if not is_odd)
    for item, stamp_ns, is_odd in marked:
        yield (item, stamp_ns, True) if is_odd else next(others)


def _mark_excursions(stamped: Iterable[tuple[T, int]]) -> Iterator[Judged[T]]:
    """Mark stamps that jump and come back; at the end, mark a jump if earlier ones have come back."""
    last_ns: int | None = None
    held: list[tuple[T, int]] = []
    has_returned = False
    for item, stamp_ns in stamped:
        if held and abs(stamp_ns - held[-1][1]) < BACKWARD_JUMP_NS:
            held.append((item, stamp_ns))
            if abs(stamp_ns - held[0][1]) > _MAX_EXCURSION_NS:
                yield from ((one, ns, False) for one, ns in held)
                last_ns, held = stamp_ns, []
            continue
        if held and last_ns is not None:
            lasted_ns = held[-1][1] - held[0][1]
            is_back = abs(stamp_ns - last_ns - lasted_ns) <= _MAX_RETURN_NS
            yield from ((one, ns, is_back) for one, ns in held)
            has_returned = len(held) > 1 if is_back else has_returned
            last_ns, held = stamp_ns if is_back else held[-1][1], []
        if last_ns is not None and abs(stamp_ns - last_ns) >= BACKWARD_JUMP_NS:
            held.append((item, stamp_ns))
        else:
            yield item, stamp_ns, False
            last_ns = stamp_ns
    yield from ((one, ns, has_returned) for one, ns in held)


def _find_single_strays(stamped: Iterable[tuple[T, int]]) -> Iterator[Judged[T]]:
    """Judge each item by the two stamps behind it."""
    last_ns: int | None = None
    # A stream's very last stamp may be this far behind the others: a slow camera's are all far apart.
    reach_ns = FORWARD_JUMP_NS
    items, second, third = tee(stamped, 3)
    next_stamps = chain((ns for _, ns in islice(second, 1, None)), [None])
    later_stamps = chain((ns for _, ns in islice(third, 2, None)), [None, None])
    for (item, stamp_ns), next_ns, later_ns in zip(items, next_stamps, later_stamps, strict=False):
        if last_ns is None:
            # Without an earlier stamp, the third decides which of two distant stamps is odd.
            is_stray = (
                next_ns is not None
                and later_ns is not None
                and follows(later_ns, next_ns)
                and not follows(next_ns, stamp_ns)
                and not follows(later_ns, stamp_ns)
            )
        elif last_ns - BACKWARD_JUMP_NS <= stamp_ns <= last_ns + STRAY_NS:
            is_stray = False
        elif next_ns is None:
            is_stray = not last_ns <= stamp_ns <= last_ns + reach_ns
        else:
            # The next stamp confirms a jump, and a slow stream may jump back at it already.
            returns = next_ns >= last_ns - BACKWARD_JUMP_NS
            is_stray = returns and (stamp_ns < last_ns or next_ns < stamp_ns - BACKWARD_JUMP_NS)
        if not is_stray:
            reach_ns = max(reach_ns, 2 * (stamp_ns - (stamp_ns if last_ns is None else last_ns)))
            last_ns = stamp_ns
        yield item, stamp_ns, is_stray


def merged(*streams: Iterable[RecordedMessage]) -> Iterator[RecordedMessage]:
    """Return the messages of all streams by their stamps; each stream keeps its order.

    A message with a stray stamp keeps its place in its stream and is marked as `stray`. When streams fall
    back, because a clock was set, what each of them had before comes first.
    """
    for _, message in heapq.merge(*map(_keyed, streams), key=lambda keyed: keyed[0]):
        yield message


def _keyed(stream: Iterable[RecordedMessage]) -> Iterator[tuple[tuple[int, int], RecordedMessage]]:
    falls, last_ns = 0, None
    for message, stamp_ns, is_stray in find_strays((one, one.stamp_ns) for one in stream):
        if is_stray:
            yield (falls, stamp_ns if last_ns is None else last_ns), message._replace(stray=True)
            continue
        if last_ns is not None and stamp_ns < last_ns - BACKWARD_JUMP_NS:
            falls += 1
        last_ns = stamp_ns
        yield (falls, stamp_ns), message


class Break(NamedTuple):
    """Behind the message stamped `last_ns` the stamps jump to `next_ns`, or the recording ends."""

    last_ns: int
    next_ns: int | None


def parts(messages: Iterable[RecordedMessage]) -> Iterator[RecordedMessage | Break]:
    """Yield the messages, with a Break wherever what follows belongs to no window before, and at the end."""
    reached_ns: int | None = None
    for message in messages:
        if not message.stray:
            if reached_ns is not None and not follows(message.stamp_ns, reached_ns):
                yield Break(reached_ns, message.stamp_ns)
                reached_ns = None
            reached_ns = message.stamp_ns if reached_ns is None else max(reached_ns, message.stamp_ns)
        yield message
    if reached_ns is not None:
        yield Break(reached_ns, None)
