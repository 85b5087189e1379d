"""What a bag from anybody may take: bytes, messages, records, texts, chunks, steps of its databases, time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from pathlib import Path
from time import thread_time
from typing import Any

from crossspec_ros.recordings.unpacking import (
    MOST_EVENTS,
    MOST_PICTURES,
    MOST_UNPACKED,
    Decompressor,
    TooLarge,
    most_of,
)

LONGEST = MOST_UNPACKED + (1 << 20)
"""Bytes of a record: a chunk as large as may be, and what is around it."""
MOST_ROW = 64 << 20
"""Bytes of a message in a database, which hands out several copies of it."""
_MESSAGE, _EVENTS = 256, 512
"""Bytes that a message takes while it is read, however short it is; one of events takes longer to look at."""
_LONGEST_NAME, _LONGEST_TEXT, _MOST_TEXT = 1000, 1 << 20, 64 << 20
"""Characters of a topic's name, of which ROS allows 255; bytes of a definition, and of all that is kept, or
as many as a fourth of a larger bag."""
_MOST_TOPICS = 4000
"""Topics or types of a file; rosbags compares each with each, and a large robot has some hundred."""
_TOPIC, _REPEATED = 1024, 2000
"""Bytes that a description counts more than it has, and that one counts which another file has as well."""
_MOST_INDEX = 128 << 20
"""Bytes that the chunks of all indexes may take, with topics that are told again, or as many as a fourth of a
larger bag."""
_CHUNK, _OFFSET = 2000, 16
"""Bytes that a chunk takes while a bag is read, and that each topic in it takes."""
STEPS, _FURTHER, _MOST_STEPS = 100_000, 250, 10
"""After how many steps SQLite is asked, how often at least, and steps for a byte on disk; sound bags take
one."""
_ALWAYS_S, _S_PER_BYTE = 4.0, 3e-6
"""Of the processor, for opening a bag and reading it to its end: so much, and for a byte on disk. Bags of the
smallest messages take a sixth of that, of flat images in bz2 a third. What is counted is refused for what it
is; this is for the rest."""


class Spent:
    """What has come out of one pass through a bag of so many bytes on disk; `always` so much may, in as many
    messages of `least` bytes as there may be for any file.
    """

    def __init__(self, stored: int, always: int = MOST_PICTURES, least: int = _MESSAGE) -> None:
        self._most_bytes, self._most_messages = most_of(stored, always), most_of(stored) // least
        self._messages = self._bytes = 0

    def add(self, size: int) -> None:
        """Take the next message, or what a chunk unpacks to; raises TooLarge where it is absurdly much."""
        self._messages += 1
        self._bytes += size
        if self._bytes > self._most_bytes or self._messages > self._most_messages:
            what = (
                f"unpacks to more than {self._most_bytes >> 20} MB"
                if self._bytes > self._most_bytes
                else f"has more than {self._most_messages} messages"
            )
            raise TooLarge(
                f"{what}, as no recording of its size does: check where it comes from, and record it again"
            )


def spent_by_events(stored: int) -> Spent:
    """What has come out of messages of events."""
    return Spent(stored, MOST_EVENTS, _EVENTS)


def check_topics(count: int) -> None:
    """Raise TooLarge for so many topics or types of a file."""
    if count > _MOST_TOPICS:
        raise TooLarge(
            f"has more than {_MOST_TOPICS} topics or types, as no recorder writes: check where it comes "
            f"from, and record it again"
        )


def check_text(size: int) -> None:
    """Raise TooLarge for so many bytes of a name or a definition."""
    if size > _LONGEST_TEXT:
        raise TooLarge(
            f"has a name or a definition of {size} bytes, as no recorder writes: check where it comes from, "
            f"and record it again"
        )


def check_names(topic: str, type_name: str) -> None:
    """Raise TooLarge for names that nobody would want to read."""
    if (size := max(len(topic), len(type_name))) > _LONGEST_NAME:
        raise TooLarge(
            f"has a topic with a name or type of {size} characters, which ROS does not allow: check where it "
            f"comes from, and record it again"
        )


def texts_of(values: Iterable[Any]) -> int:
    """The length of all texts and bytes among these."""
    return sum(len(value) for value in values if isinstance(value, str | bytes))


def unpack_cut(
    data: bytes | memoryview, decompressor: Callable[[], Decompressor], size: int, spent: Spent
) -> bytes:
    """What there is of a part that says it unpacks to `size` bytes; those that come out are spent, or where
    it is damaged, those that it says.

    Raises EOFError where it is larger, and what the decompressor raises.
    """
    most = count = min(size, MOST_UNPACKED)
    try:
        unpacked = decompressor().decompress(data, most + 1)
        count = len(unpacked)
    finally:
        spent.add(count)
    if count > most:
        raise EOFError("it unpacks to more than it says, or than is read")
    return unpacked


class ProcessorTime:
    """What all readers of a bag, of so many bytes on disk, may take of the processor."""

    def __init__(self, stored: int) -> None:
        self._most_s = _ALWAYS_S + _S_PER_BYTE * stored
        self._until_s = inf
        self.begin()

    def begin(self) -> None:
        """Allow it anew, once the bag was read to its end."""
        self._left_s = self._most_s

    def start(self) -> None:
        """Take what this thread works from now on."""
        self._until_s = thread_time() + self._left_s

    def stop(self) -> None:
        """Take no more until the next start."""
        self._left_s = self._until_s - thread_time()
        self._until_s = inf

    def check(self) -> None:
        """Raise TooLarge where it takes longer than it may."""
        if thread_time() > self._until_s:
            raise TooLarge(
                "takes longer to read than recordings of its size do: check where it comes from, and record "
                "it again"
            )


class Budget:
    """What the files of a bag, of so many bytes on disk, may take together, however little each takes."""

    def __init__(self, stored: int, time: ProcessorTime | None = None) -> None:
        self.stored = stored
        self.time = time or ProcessorTime(stored)
        self.unpacked = Spent(stored)
        """By the index, or by what is scanned where there is none."""
        self._most_index = self._index = max(_MOST_INDEX, stored // 4)
        self._most_text = self._text = max(_MOST_TEXT, stored // 4)
        self._texts: dict[str | bytes, str | bytes] = {}
        self.begin()

    def begin(self) -> None:
        """Allow a pass through its records and databases anew."""
        self.records = Spent(self.stored)
        self._steps = _FURTHER + _MOST_STEPS * self.stored // STEPS

    def kept(self, number: Any, told: tuple[Any, ...]) -> tuple[Any, ...]:
        """A description of a type or topic, to be kept by its number; each text of a bag is kept once.

        Raises TooLarge where they are absurdly much.
        """
        texts = [value for value in (number, *told) if isinstance(value, str | bytes)]
        fresh = sum(len(text) for text in texts if text not in self._texts)
        if fresh:
            self.take_text(fresh)
        else:
            self._take_index(_REPEATED)
        for text in texts:
            self._texts.setdefault(text, text)
        values = [self._texts[value] if isinstance(value, str | bytes) else value for value in told]
        return type(told)(*values) if hasattr(told, "_fields") else tuple(values)

    def take_text(self, size: int) -> None:
        """Take a description of so many bytes; raises TooLarge where they are absurdly much."""
        self.time.check()
        self._text -= size + _TOPIC
        if self._text < 0:
            raise TooLarge(
                f"has topics and types that take more than {self._most_text >> 20} MB, as no recorder "
                f"writes: check where it comes from, and record it again"
            )

    def take_chunk(self, topics: int) -> None:
        """Take a chunk of an index with so many topics; raises TooLarge where they are absurdly many."""
        self._take_index(_CHUNK + _OFFSET * topics)

    def _take_index(self, size: int) -> None:
        self.time.check()
        self._index -= size
        if self._index < 0:
            raise TooLarge(
                f"has an index that takes more than {self._most_index >> 20} MB, as no recording of its size "
                f"does: check where it comes from, and record it again"
            )

    def walk(self) -> bool:
        """Take `STEPS` steps of SQLite; whether there are no more."""
        self._steps -= 1
        return self.is_walked_through

    @property
    def is_walked_through(self) -> bool:
        """Whether its databases took more steps than there are."""
        return self._steps < 0


_BUDGET: ContextVar[Budget] = ContextVar("budget")
_END = object()


@contextmanager
def shared(budget: Budget) -> Iterator[None]:
    """What is opened and read meanwhile takes from this budget, and what is opened does so later."""
    token = _BUDGET.set(budget)
    budget.time.start()
    try:
        yield
        budget.time.check()
    finally:
        budget.time.stop()
        _BUDGET.reset(token)


def drawn(items: Iterator[Any], budget: Budget) -> Iterator[Any]:
    """The same items, taken from this budget."""
    while True:
        # Not by `shared`: some bags have millions of messages.
        token = _BUDGET.set(budget)
        budget.time.start()
        try:
            budget.time.check()
            item = next(items, _END)
            budget.time.check()
        finally:
            budget.time.stop()
            _BUDGET.reset(token)
        if item is _END:
            return
        yield item


def current() -> Budget | None:
    """The budget of the bag that is read."""
    return _BUDGET.get(None)


def budget_of(file: Path) -> Budget:
    """That of the bag, or one of its own for a file that somebody else opens."""
    return current() or Budget(file.stat().st_size)


class Described(dict[Any, Any]):
    """What a bag says of its types or of its topics by their numbers, tuples with texts; raises TooLarge for
    absurdly much, which others may keep even where it is replaced here.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def __setitem__(self, number: Any, told: tuple[Any, ...]) -> None:
        # Some recorders say the same in each chunk.
        if self.get(number) != told:
            check_topics(len(self) + 1)
            super().__setitem__(number, self._budget.kept(number, told))
