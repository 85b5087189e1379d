"""Contract of a recording, and a recording made of blocks of events and images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
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
    """Name of the format and how it is read, for people."""
    event_topic: str | None
    event_type: str
    """The default type if there are no events."""
    image_topic: str | None
    image_type: str | None
    start_ns: int
    """Stamp of the first message, ROS time."""
    remarks: Sequence[str]
    """Sentences for the user before it plays, such as other topics that could be played."""
    losses: list[str]
    """A sentence for each part that could not be read; complete once `messages` has ended."""

    def messages(self) -> Iterator[RecordedMessage]:
        """Yield both streams from the start, merged by stamp; raises InputError if it cannot go on."""

    def close(self) -> None:
        """Close the files."""


class EventSource(Protocol):
    """The events of one sensor, in order."""

    format: str
    """Name of the format and how it is read, for people."""

    def batches(self) -> Iterator[EventBatch]:
        """Yield blocks of about a million events from the start, on ROS time = the recording's time.

        Raises InputError at the end if the file is damaged, after all blocks that could be read.
        """

    def close(self) -> None:
        """Close the files."""


class ImageSource(Protocol):
    """Images that belong to the events, in order."""

    topic: str
    type: str
    """As in `sensor_msgs/msg/Image`."""

    def messages(self) -> Iterator[RecordedMessage]:
        """Yield all readable images from the start; raises InputError at the end if some are damaged."""

    def close(self) -> None:
        """Close the files."""


class SourceRecording:
    """Events and images as a Recording: evt3 packets of 10 ms, each stamped with its first event.

    The stream ends with a packet without events that carries the time of the last event. The readable part of
    a damaged file plays; `losses` names the rest. Raises InputError if there are no events.
    """

    event_topic: str | None = "/event_camera/events"
    event_type = EVENT_PACKET

    def __init__(self, path: Path, events: EventSource, images: ImageSource | None = None) -> None:
        self._path, self._events, self._images = path, events, images
        self.format = events.format
        self._remarks: list[str] = [*getattr(events, "remarks", ())]
        self.remarks: Sequence[str] = self._remarks
        self.losses: list[str] = []
        self.image_topic = images.topic if images else None
        self.image_type = images.type if images else None
        self._begun = self._pass()
        first = next(self._begun)
        self._read = [first]
        while self._read[-1].stray and (message := next(self._begun, None)):
            self._read.append(message)
        # A stray begins no window.
        self.start_ns = (first if self._read[-1].stray else self._read[-1]).stamp_ns

    def messages(self) -> Iterator[RecordedMessage]:
        # The first pass goes on with the one that found the start, so that nothing is read twice.
        begun, self._begun = chain(self._read, self._begun), self._pass()
        self._read = []
        return begun

    def close(self) -> None:
        self._events.close()
        if self._images:
            self._images.close()

    def _pass(self) -> Iterator[RecordedMessage]:
        self.losses.clear()
        yield from merged(self._packets(), self._pictures())

    def _packets(self) -> Iterator[RecordedMessage]:
        message = None
        try:
            for message in packets(self._path, self._events.batches(), self.tell):
                yield message
        except InputError as error:
            if message is None:
                raise
            self._lose(error)
        if message is None:
            raise InputError(f"'{self._path}' has no events: choose another recording, or copy it again")

    def tell(self, remark: str) -> None:
        """Add a remark, once for all passes."""
        if remark not in self._remarks:
            self._remarks.append(remark)

    def _pictures(self) -> Iterator[RecordedMessage]:
        try:
            if self._images:
                yield from self._images.messages()
        except InputError as error:
            self._lose(error)

    def _lose(self, error: InputError) -> None:
        if str(error) not in self.losses:
            self.losses.append(str(error))


def packets(
    path: Path, batches: Iterator[EventBatch], tell: Callable[[str], None] = lambda remark: None
) -> Iterator[RecordedMessage]:
    """Yield the events of a file as packets, and at last a packet with the time of the last event.

    Raises the InputError of the batches after that.
    """
    cutter, damage = PacketCutter(path), None
    try:
        for batch in in_order(batches, tell):
            yield from cutter.cut(batch)
    except InputError as error:
        damage = error
    yield from cutter.finish()
    if damage:
        raise damage


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
