"""Recordings made of blocks of events and of images."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import EVENT_PACKET, IMAGE, RecordedMessage
from crossspec_ros.events.packets import PacketCutter
from crossspec_ros.events.stamps import merged
from crossspec_ros.recordings.recording import Recording

WINDOW_US = 1_000_000
"""Events that are late by less are sorted."""
LATE_US = 5_000
"""Events that are late by less are drawn right (windows/slices.py)."""
_T = TypeVar("_T")


class StampedImages:
    """Images that are read one by one, in the order of their stamps; `read(index, stamp_ns)` gives CDR."""

    type = IMAGE

    def __init__(self, stamps_ns: Sequence[int], read: Callable[[int, int], bytes]) -> None:
        self._stamps_ns, self._read = stamps_ns, read

    def messages(self) -> Iterator[RecordedMessage]:
        """Yield all readable images from the start; raises InputError at the end if some are damaged."""
        unreadable: list[Exception] = []
        for index in sorted(range(len(self._stamps_ns)), key=self._stamps_ns.__getitem__):
            stamp_ns = self._stamps_ns[index]
            try:
                data = self._read(index, stamp_ns)
            except (OSError, ValueError, RuntimeError, LookupError) as error:
                unreadable.append(error)
            else:
                yield RecordedMessage(stamp_ns, "image", self.type, data)
        if unreadable:
            what = f"{len(unreadable)} of {len(self._stamps_ns)} images cannot be read"
            if isinstance(unreadable[0], InputError):
                raise InputError(f"{what}: {unreadable[0]}")
            raise InputError(f"{what} ({one_line(unreadable[0])}): copy them again")


class FileRecording(Recording):
    """A recording that reads its events and its images separately.

    `begin` reads up to the first stamp, once it has all images. The first pass of `messages` goes on from
    there, so that nothing is read twice.
    """

    event_topic: str | None = None
    event_type = EVENT_PACKET
    image_topic: str | None = None
    image_type: str | None = None

    def __init__(self, path: Path) -> None:
        self._path = path
        self.remarks, self.losses = [], []
        self._event_messages: Callable[[], Iterable[RecordedMessage]] = tuple
        self._image_messages: Callable[[], Iterable[RecordedMessage]] = tuple

    def use_images(self, messages: Callable[[], Iterable[RecordedMessage]], type: str = IMAGE) -> None:
        """Play these images, in place of others."""
        self._image_messages, self.image_type = messages, type
        self.image_topic = "/camera/image_raw" if type == IMAGE else "/camera/image_raw/compressed"

    def begin(self) -> None:
        """Find the start; raises InputError if there is nothing to play."""
        self._begun, self._read = self._pass(), list[RecordedMessage]()
        for message in self._begun:
            self._read.append(message)
            # A stray begins no window.
            if not message.stray:
                break
        if not self._read:
            raise InputError(f"'{self._path}' cannot be played: {'; '.join(self.losses) or 'it is empty'}")
        self.start_ns = self._read[0 if self._read[-1].stray else -1].stamp_ns

    def messages(self) -> Iterator[RecordedMessage]:
        begun = chain(self._read, self._begun)
        self._begun, self._read = self._pass(), []
        return begun

    def _pass(self) -> Iterator[RecordedMessage]:
        self.losses.clear()
        yield from merged(self._event_messages(), self._readable(self._image_messages()))

    def _readable(self, stream: Iterable[_T]) -> Iterator[_T]:
        """Yield a stream up to the damage that ends it, which becomes a loss."""
        try:
            with naming_damage(self._path):
                yield from stream
        except InputError as error:
            if str(error) not in self.losses:
                self.losses.append(str(error))


class SourceRecording(FileRecording):
    """Blocks of one sensor's events as `mono` packets of 10 ms, each stamped with its first event.

    The stream ends with a packet without events that carries the time of the last event. Subclasses set
    `format`.
    """

    event_topic: str | None = "/event_camera/events"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._event_messages = self._packets

    @abstractmethod
    def batches(self) -> Iterator[EventBatch]:
        """Yield blocks of about a million events from the start, on ROS time = the recording's time.

        Raises InputError at the end if the file is damaged, after all blocks that could be read.
        """

    def close(self) -> None:
        """Do nothing, because most sources open their file for each pass."""

    def _packets(self) -> Iterator[RecordedMessage]:
        cutter, message = PacketCutter(self._path), None
        batches = map(self._in_order, self._readable(self.batches()))
        packets = self._readable(chain.from_iterable(map(cutter.cut, batches)))
        for message in chain(packets, cutter.finish()):
            yield message
        if message is None:
            empty = f"'{self._path}' has no events: choose another recording, or copy it again"
            raise InputError("; ".join(self.losses) or empty)

    def _in_order(self, batch: EventBatch) -> EventBatch:
        """Sort the events of a block that are late by more than `LATE_US` and less than a window.

        Where times go back farther, or a single one is far ahead, they stay as they are.
        """
        parts = []
        cuts = np.flatnonzero(np.diff(batch.t) < -WINDOW_US) + 1
        for start, stop in pairwise([0, *cuts.tolist(), len(batch)]):
            part = batch[start:stop]
            if LATE_US < (np.maximum.accumulate(part.t) - part.t).max(initial=0) < WINDOW_US:
                part = part[np.argsort(part.t, kind="stable")]
                remark = "its events were not in the order of their times, and were sorted"
                self.remarks += [remark] if remark not in self.remarks else []
            parts.append(part)
        return EventBatch.concat(parts)


@contextmanager
def naming_damage(path: Path) -> Iterator[None]:
    """Raise InputError that names the file for what a library raises about an unreadable or damaged one."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    # numpy, pickle, h5py and aedat document no exceptions for damaged files.
    except Exception as error:
        if isinstance(error, OSError) and error.errno:
            raise InputError(
                f"'{error.filename or path}' cannot be read ({error.strerror or error}): give yourself the "
                f"right to read it, or copy it again"
            ) from error
        raise InputError(
            f"'{path}' is truncated, damaged or still being written ({one_line(error)[:200]}): copy it again"
        ) from error


def damaged(path: Path, damage: Mapping[str, int]) -> InputError:
    """Return the error that a source raises in the end: how much of a file could not be used, by kind."""
    kinds = ", ".join(f"{kind.replace('_', ' ')} {count}" for kind, count in sorted(damage.items()) if count)
    return InputError(
        f"some of '{path}' could not be decoded ({kinds}), the rest was: copy or record it again"
    )
