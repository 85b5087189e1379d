"""Recordings, and what a format has to give to be one: blocks of events, and pictures where it has any."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import EVENT_PACKET, RecordedMessage
from crossspec_ros.events.packets import PacketCutter
from crossspec_ros.events.stamps import merged

WINDOW_US = 1_000_000
"""Events that are late by less are sorted."""
LATE_US = 5_000
"""Events that are late by less are drawn right (windows/slices.py)."""


class Recording(Protocol):
    """A recorded event stream, an image stream, or both."""

    format: str
    """Name of the format, and how it is read, for people."""
    event_topic: str | None
    event_type: str
    """The usual one where there are no events."""
    image_topic: str | None
    image_type: str | None
    start_ns: int
    """Earliest stamp of any message, ROS time."""
    end_ns: int
    """Latest stamp of any message."""
    remarks: Sequence[str]
    """A sentence for each thing to know before it plays, such as what else it has that could be played."""
    losses: list[str]
    """A sentence for each thing that could not be read; complete once `messages` has ended."""

    def messages(self) -> Iterator[RecordedMessage]:
        """Both streams from the start, merged by stamp; raises InputError where nothing more can be read."""

    def close(self) -> None:
        """Let go of the files."""


class EventSource(Protocol):
    """The events of one sensor, in order."""

    format: str
    """Name of the format, and how it is read, for people."""
    start_us: int
    """Time of the first event, ROS time = the recording's time."""
    end_us: int
    """Time of the last one."""

    def batches(self) -> Iterator[EventBatch]:
        """Blocks of about a million events from the start.

        Raises InputError in the end when the file is damaged, after all blocks that could be read.
        """

    def close(self) -> None:
        """Let go of the files."""


class ImageSource(Protocol):
    """The pictures that belong to them, in order."""

    topic: str
    type: str
    """As in `sensor_msgs/msg/Image`."""
    start_ns: int
    end_ns: int

    def messages(self) -> Iterator[RecordedMessage]:
        """All that can be read from the start; raises InputError in the end when some are damaged."""

    def close(self) -> None:
        """Let go of the files."""


class SourceRecording:
    """Events and pictures as a Recording: evt3 packets of 10 ms, each stamped with its first event.

    What of a damaged file could be read plays; the rest is told in `losses`.
    """

    event_topic: str | None = "/event_camera/events"
    event_type = EVENT_PACKET

    def __init__(self, path: Path, events: EventSource, images: ImageSource | None = None) -> None:
        self._path, self._events, self._images = path, events, images
        self.format = events.format
        # Few formats leave anything open.
        self._remarks: list[str] = [*getattr(events, "remarks", ())]
        self.remarks: Sequence[str] = self._remarks
        self.losses: list[str] = []
        self.image_topic = images.topic if images else None
        self.image_type = images.type if images else None
        start_ns = first_sound_ns(self._packets(), events)
        self.start_ns = min([start_ns, *([images.start_ns] if images else [])])
        self.end_ns = max([events.end_us * 1000, *([images.end_ns] if images else [])])

    def messages(self) -> Iterator[RecordedMessage]:
        self.losses.clear()
        return merged(self._packets(), self._pictures())

    def close(self) -> None:
        self._events.close()
        if self._images:
            self._images.close()

    def _packets(self) -> Iterator[RecordedMessage]:
        message = None
        try:
            for message in packets(self._path, self._events.batches(), self.tell):
                yield message
        except InputError as error:
            if message is None:
                raise
            self.losses.append(str(error))

    def tell(self, remark: str) -> None:
        """Add a remark, once for all passes."""
        if remark not in self._remarks:
            self._remarks.append(remark)

    def _pictures(self) -> Iterator[RecordedMessage]:
        try:
            if self._images:
                yield from self._images.messages()
        except InputError as error:
            self.losses.append(str(error))


def packets(
    path: Path, batches: Iterator[EventBatch], tell: Callable[[str], None] = lambda remark: None
) -> Iterator[RecordedMessage]:
    """The events of a file as packets."""
    cutter = PacketCutter(path)
    for batch in in_order(batches, tell):
        yield from cutter.cut(batch)


def first_sound_ns(packets: Iterator[RecordedMessage], events: EventSource) -> int:
    """Stamp of the first event: a very first one that is a stray begins no window."""
    sound = (message.stamp_ns for message in merged(packets) if not message.stray)
    return next(sound, events.start_us * 1000)


def in_order(batches: Iterator[EventBatch], tell: Callable[[str], None]) -> Iterator[EventBatch]:
    """The same events, those sorted that are late by more than `LATE_US` and less than a window.

    Where times go back farther, or a single one is far ahead, they stay as they are.
    """
    held: EventBatch | None = None
    reach = 0
    try:
        for batch in batches:
            batch = EventBatch.concat([held, batch]) if held else batch
            held, parts = None, []
            cuts = np.flatnonzero(np.diff(batch.t) < -WINDOW_US) + 1
            for start, stop in pairwise([0, *cuts.tolist(), len(batch)]):
                part = batch[start:stop]
                late = int((np.maximum.accumulate(part.t) - part.t).max(initial=0))
                if LATE_US < late < WINDOW_US:
                    tell(
                        "its events were not in the order of their times, and were sorted within each second"
                    )
                    part, reach = part[np.argsort(part.t, kind="stable")], max(reach, 2 * late)
                if reach and len(part) and stop == len(batch):
                    # What the next may be late behind waits for it.
                    keep = int(np.searchsorted(part.t, part.t[-1] - reach))
                    part, held = part[:keep], part[keep:]
                parts.append(part)
            yield EventBatch.concat(parts)
    except InputError:
        if held:
            yield held
        raise
    if held:
        yield held


def damaged(path: Path, damage: Mapping[str, int]) -> InputError:
    """For a source to raise in the end: how much of a file could not be used, by kind."""
    kinds = ", ".join(f"{kind.replace('_', ' ')} {count}" for kind, count in sorted(damage.items()) if count)
    return InputError(
        f"some of '{path}' could not be decoded ({kinds}), the rest was: copy or record it again"
    )
