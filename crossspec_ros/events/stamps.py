"""The judge of stamps, for live streams and recordings alike: strays, gaps, and clocks that were set.

A node that stamps one message with zero, or with another clock, must not move time. A stamp that is far from
those before it is believed when the next one goes on from there.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import chain, islice, tee
from typing import Generic, NamedTuple, TypeVar

from crossspec_ros.events.cdr import RecordedMessage

BACKWARD_JUMP_NS = 1_000_000_000
"""A stream that falls back farther starts anew; less is disorder."""
FORWARD_JUMP_NS = 10_000_000_000
"""Data that are farther apart have nothing to do with each other: a gap that is skipped."""
STRAY_NS = 2_000_000_000
"""A stamp that is farther ahead needs another one to be believed."""
ALONE_NS = 3_000_000_000
"""A live stream that goes on alone for longer is not shut out by the other one's last stamps."""

T = TypeVar("T")


def is_confirmed(before_ns: int | None, stamp_ns: int, next_ns: int) -> bool:
    """Whether a stream's next stamp goes on from `stamp_ns`, and not from `before_ns`, the one before."""
    if before_ns is None or stamp_ns > before_ns:
        return next_ns >= stamp_ns - BACKWARD_JUMP_NS
    # Behind a jump back, the next may be anywhere before the jump.
    return next_ns < before_ns - BACKWARD_JUMP_NS


def follows(stamp_ns: int, before_ns: int) -> bool:
    """Whether neither a gap nor a jump back lies between two stamps."""
    return -BACKWARD_JUMP_NS <= stamp_ns - before_ns <= FORWARD_JUMP_NS


class Verdict(Enum):
    """The fate of a live message."""

    TAKE = "take it"
    JUMP_BACK = "start anew, for time jumps back, and take it"
    JUMP_AHEAD = "start anew, for time jumps ahead, and take it"
    LATE = "drop it: it is from before a jump back that the other stream has made"
    STRAY = "drop it: nothing confirms its stamp"


# Not frozen, which would take longer than judging it.
@dataclass(slots=True, eq=False)
class LiveMessage(Generic[T]):
    """A message of a live stream, of so many data."""

    item: T
    stream: str
    stamp_ns: int
    count: int = 1
    is_silence: bool = False
    """Only says that its stream has come so far."""
    is_certain: bool = False
    """Its stamp needs no confirmation."""


class StampJudge(Generic[T]):
    """Judges the messages of two live streams, each before anybody knows what follows it.

    `reached` says how far each stream has come since everything last started anew; whoever takes a message
    puts it there. A message whose stamp jumps is held until others confirm it, or belie it. A stream that
    goes on alone is followed, wherever the other one was at last. `closing(stamp_ns)` is a stamp at which
    the window of `stamp_ns` has closed for any stream.
    """

    def __init__(self, closing: Callable[[int], int]) -> None:
        self.reached: dict[str, int] = {}
        self._closing = closing
        # Each with where its stream was before.
        self._held: dict[str, tuple[LiveMessage[T], int | None]] = {}
        self._before_jump: dict[str, int] = {}
        self._heard: dict[str, int] = {}
        self._lone_stream, self._lone_since_ns = "", 0

    def forget(self) -> None:
        """Start anew; what is held stays."""
        self.reached.clear()
        self._before_jump = {}

    def judge(self, message: LiveMessage[T]) -> Iterator[tuple[LiveMessage[T], Verdict]]:
        """Verdicts on what was held, and on the message unless it is held now.

        Each is to be acted on before the next is asked for.
        """
        stream, stamp_ns = message.stream, message.stamp_ns
        self._hear(stream, stamp_ns)
        if self._before_jump and self._is_straggler(stream, stamp_ns):
            yield message, Verdict.LATE
            return
        yield from self._judge_held(stream, stamp_ns)
        if message.is_certain:
            yield message, self._admit(message)
        elif self._is_shut_out(stream, stamp_ns):
            self.forget()
            yield message, Verdict.JUMP_BACK
        elif self._is_ahead(message) or self._jump(message) is not Verdict.TAKE:
            self._held[stream] = message, self.reached.get(stream)
        else:
            yield message, Verdict.TAKE

    def _judge_held(self, stream: str, stamp_ns: int) -> Iterator[tuple[LiveMessage[T], Verdict]]:
        for other, (held, before_ns) in sorted(self._held.items()):
            # A player's sign that it begins again there, as a stamp of either stream shows.
            is_sign = held.is_silence and abs(stamp_ns - held.stamp_ns) <= BACKWARD_JUMP_NS
            if other == stream:
                is_believed = is_sign or is_confirmed(before_ns, held.stamp_ns, stamp_ns)
            else:
                is_ahead = held.stamp_ns > max(self.reached.values(), default=held.stamp_ns)
                is_believed = is_sign or (is_ahead and held.stamp_ns <= stamp_ns + BACKWARD_JUMP_NS)
                if not is_believed:
                    continue
            del self._held[other]
            yield held, self._admit(held) if is_believed else Verdict.STRAY

    def _admit(self, message: LiveMessage[T]) -> Verdict:
        verdict = self._jump(message)
        if verdict is not Verdict.TAKE:
            others = {other: ns for other, ns in self.reached.items() if other != message.stream}
            self.forget()
            self._before_jump = others if verdict is Verdict.JUMP_BACK else {}
        return verdict

    def _jump(self, message: LiveMessage[T]) -> Verdict:
        stamp_ns = message.stamp_ns
        if stamp_ns < self.reached.get(message.stream, stamp_ns) - BACKWARD_JUMP_NS:
            return Verdict.JUMP_BACK
        is_ahead = stamp_ns > max(self.reached.values(), default=stamp_ns) + FORWARD_JUMP_NS
        return Verdict.JUMP_AHEAD if is_ahead else Verdict.TAKE

    def _is_ahead(self, message: LiveMessage[T]) -> bool:
        if not self.reached:
            return False
        known_ns = max(self.reached.values()) + STRAY_NS
        # A player closes the last window so.
        return message.stamp_ns > (self._closing(known_ns) if message.is_silence else known_ns)

    def _is_shut_out(self, stream: str, stamp_ns: int) -> bool:
        """Whether the stream goes on alone in windows that the other one has closed, far ahead of it."""
        if not self._is_alone(stream, stamp_ns):
            return False
        others = [reached for other, reached in self.reached.items() if other != stream]
        return max(others, default=stamp_ns) >= self._closing(stamp_ns)

    def _is_straggler(self, stream: str, stamp_ns: int) -> bool:
        """Whether this is from before a jump back that only the other stream has made so far."""
        before_ns = self._before_jump.get(stream)
        if before_ns is None:
            return False
        now_ns = max(self.reached.values(), default=before_ns)
        is_before_jump = (
            now_ns < before_ns <= stamp_ns + BACKWARD_JUMP_NS and stamp_ns - BACKWARD_JUMP_NS > now_ns
        )
        if is_before_jump and not self._is_alone(stream, stamp_ns):
            return True
        del self._before_jump[stream]
        return False

    def _hear(self, stream: str, stamp_ns: int) -> None:
        # A clock that stands still tells of no time.
        if stamp_ns == self._heard.get(stream):
            return
        self._heard[stream] = stamp_ns
        if stream != self._lone_stream or stamp_ns < self._lone_since_ns:
            self._lone_stream, self._lone_since_ns = stream, stamp_ns

    def _is_alone(self, stream: str, stamp_ns: int) -> bool:
        """Whether the other stream has said nothing new for seconds of this one's."""
        return stream == self._lone_stream and stamp_ns - self._lone_since_ns > ALONE_NS


Judged = tuple[T, int, bool]
"""Something with a stamp in ns, and whether that stamp is a stray."""


def find_strays(stamped: Iterable[tuple[T, int]]) -> Iterator[Judged[T]]:
    """Judge each item of one recorded stream, given with its stamp, by the two stamps behind it.

    A jump that the next stamp confirms is no stray: a clock was set, or the recording has a gap.
    """
    last_ns: int | None = None
    # A stream's very last stamp may be this far behind the others: a slow camera's are all far apart.
    reach_ns = FORWARD_JUMP_NS
    items, second, third = tee(stamped, 3)
    next_stamps = chain((ns for _, ns in islice(second, 1, None)), [None])
    later_stamps = chain((ns for _, ns in islice(third, 2, None)), [None, None])
    for (item, stamp_ns), next_ns, later_ns in zip(items, next_stamps, later_stamps, strict=False):
        if last_ns is None:
            # With nothing before, the third tells which of two that are far apart is odd.
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
            # A slow stream may jump back at its next stamp already.
            returns = next_ns >= last_ns - BACKWARD_JUMP_NS
            is_stray = returns and not is_confirmed(last_ns, stamp_ns, next_ns)
        if not is_stray:
            reach_ns = max(reach_ns, 2 * (stamp_ns - (stamp_ns if last_ns is None else last_ns)))
            last_ns = stamp_ns
        yield item, stamp_ns, is_stray


def merged(*streams: Iterable[RecordedMessage]) -> Iterator[RecordedMessage]:
    """The messages of all streams by their stamps; each stream keeps its order.

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
