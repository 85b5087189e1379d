"""A topic of a recording, counted message by message, and what is wrong with it."""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.camera_images import camera_array, compressed_array
from crossspec_ros.events.cdr import COMPRESSED_IMAGE, EVENT_TYPES, stamp_ns, typestore
from crossspec_ros.events.sample_depth import SampleDepth
from crossspec_ros.events.stamps import FORWARD_JUMP_NS, Judged, StrayFinder

SECOND = 1_000_000_000
_TELLING_DELAY_NS = SECOND


class Times:
    """First and last of a sequence of times, and how often and how far it goes back."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.last: int | None = None
        self.back = 0
        self.furthest_back = 0

    def add(self, time: int) -> None:
        """Take the next time, of any unit."""
        if self.last is None:
            self.first = time
        elif time < self.last:
            self.back += 1
            self.furthest_back = max(self.furthest_back, self.last - time)
        self.last = time

    def add_all(self, times: np.ndarray) -> None:
        """Take the next times (N,), int64 of any unit and at least one."""
        self.add(int(times[0]))
        # np.diff would take longer than the rest of what is done with a small packet.
        steps = times[1:] - times[:-1]
        if (steps < 0).any():
            self.back += int(np.count_nonzero(steps < 0))
            self.furthest_back = max(self.furthest_back, -int(steps.min()))
        self.last = int(times[-1])

    def span(self) -> int:
        """From the first to the last time, 0 when there are none."""
        return 0 if self.first is None or self.last is None else self.last - self.first

    def overlaps(self, other: Times) -> bool:
        """Whether the spans of both have a time in common."""
        spans = (self.first, self.last, other.first, other.last)
        if None in spans:
            return False
        first, last, other_first, other_last = (time or 0 for time in spans)
        return first <= other_last and other_first <= last


class TopicSurvey:
    """A topic of any type: how many messages, and when they were recorded."""

    kind = "other"

    def __init__(self, topic: str, type_name: str) -> None:
        self.topic, self.type = topic, type_name
        self.messages = 0
        self.recorded = Times()

    def add(self, recorded_ns: int, data: bytes) -> None:
        """Take the topic's next message: when it was recorded, and its CDR bytes."""
        self.messages += 1
        self.recorded.add(recorded_ns)

    def finish(self) -> None:
        """Nothing follows."""

    def figures(self) -> dict[str, Any]:
        """All that is known, ready for JSON."""
        span_s = self.recorded.span() / SECOND
        return {
            "topic": self.topic,
            "type": self.type,
            "kind": self.kind,
            "messages": self.messages,
            "rate_hz": (self.messages - 1) / span_s if span_s > 0 else None,
            "first_recorded_ns": self.recorded.first,
            "last_recorded_ns": self.recorded.last,
        }

    def findings(self) -> list[str]:
        """A sentence, with the remedy, for each thing that is wrong."""
        return []


class StampedSurvey(TopicSurvey, ABC):
    """A topic whose messages are read; a message that cannot be read is counted."""

    def __init__(self, topic: str, type_name: str) -> None:
        super().__init__(topic, type_name)
        self.stamps = Times()
        self.strays = self.gaps = self.longest_gap_ns = 0
        self._finder = StrayFinder[int]()
        self.unreadable = Kinds()
        self._delay_sum_ns = 0
        self._definition = EVENT_TYPES.get(type_name, type_name)

    def add(self, recorded_ns: int, data: bytes) -> None:
        super().add(recorded_ns, data)
        try:
            stamp, message = stamp_ns(data), self._parse(data)
        # rosbags promises no exception for damaged bytes; struct.error, ValueError and others were seen.
        except Exception as error:
            self.unreadable.see(str(error) or type(error).__name__)
            return
        if message is None:
            return
        self._judge(self._finder.add(recorded_ns, stamp))
        self._take(stamp, message)

    def finish(self) -> None:
        """Judge the last stamps, now that nothing follows."""
        self._judge(self._finder.finish())

    def _judge(self, judged: Iterable[Judged[int]]) -> None:
        for recorded_ns, stamp, is_stray in judged:
            if is_stray:
                self.strays += 1
                continue
            if self.stamps.last is not None and stamp - self.stamps.last > FORWARD_JUMP_NS:
                self.gaps += 1
                self.longest_gap_ns = max(self.longest_gap_ns, stamp - self.stamps.last)
            self.stamps.add(stamp)
            self._delay_sum_ns += recorded_ns - stamp
            self._take_stamp(stamp)

    def _take_stamp(self, stamp: int) -> None:
        """A stamp that is no stray."""

    def _parse(self, data: bytes) -> Any:
        """The message, or None for one that is a player's and no camera's."""
        return typestore().deserialize_cdr(data, self._definition)

    @abstractmethod
    def _take(self, stamp: int, message: Any) -> None: ...

    def _delay_ns(self) -> float:
        return self._delay_sum_ns / max(1, self.messages - self.unreadable.total() - self.strays)

    def figures(self) -> dict[str, Any]:
        return {
            **super().figures(),
            "first_stamp_ns": self.stamps.first,
            "last_stamp_ns": self.stamps.last,
            "stamps_back": self.stamps.back,
            "furthest_stamp_back_ms": self.stamps.furthest_back / 1e6,
            "stray_stamps": self.strays,
            "gaps": self.gaps,
            "longest_gap_s": self.longest_gap_ns / SECOND,
            "mean_recording_delay_ms": self._delay_ns() / 1e6,
            "unreadable_messages": self.unreadable.total(),
        }

    def findings(self) -> list[str]:
        found = []
        if self.unreadable:
            reason, _ = self.unreadable.most_common(1)[0]
            found.append(
                f"{self.unreadable.total()} of {self.messages} messages are no {self.type} ({reason}): copy "
                f"the recording again, or check which definition its recorder had"
            )
        if self.strays:
            found.append(
                f"{self.strays} stamps lie far from those before and behind them, so no window goes by them: "
                f"check the node, or what wrote the file, that gave them"
            )
        if self.gaps:
            found.append(
                f"{self.gaps} gaps are longer than {FORWARD_JUMP_NS // SECOND} s, the longest is "
                f"{self.longest_gap_ns / SECOND:.1f} s: replay skips them"
            )
        if self.stamps.back:
            found.append(
                f"the stamps go back {self.stamps.back} times, by up to "
                f"{self.stamps.furthest_back / 1e6:.1f} ms: a clock was set while recording, several nodes "
                f"publish here, or the events of a file are not in order: sort these by time"
            )
        if abs(self._delay_ns()) > _TELLING_DELAY_NS:
            found.append(
                f"the stamps are {self._delay_ns() / SECOND:.1f} s behind the times of recording on "
                f"average: check that the cameras' hosts have one clock, since windows go by the stamps"
            )
        return found


_LONGEST, _MOST = 300, 20
_OTHERS = "others"


def cut(text: str) -> str:
    """The text, or how it begins."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} [...]"


class Kinds(Counter[str]):
    """Counts of texts; those that are too many for one recording are counted as one."""

    def see(self, text: str) -> str:
        """Count a text; returns what it is counted as."""
        kind = cut(text)
        if kind not in self and len(self) >= _MOST:
            kind = _OTHERS
        self[kind] += 1
        return kind


class ImageSurvey(StampedSurvey):
    """A topic of raw or compressed images. Of each encoding images are read until one can be; of the others
    that are compressed only the end is looked at.
    """

    kind = "images"

    def __init__(self, topic: str, type_name: str) -> None:
        super().__init__(topic, type_name)
        self._encodings, self._sizes = Kinds(), Kinds()
        self._all_stamps = array("q")
        self._short = 0
        self._readable: set[str] = set()
        self._faults: dict[str, str] = {}
        self._depth = SampleDepth()

    def _take(self, stamp: int, message: Any) -> None:
        read: Callable[[Any], np.ndarray]
        if self.type == COMPRESSED_IMAGE:
            encoding, read = message.format, compressed_array
            self._short += not _is_whole(message.data)
        else:
            encoding, read = message.encoding, camera_array
            self._sizes.see(f"{message.width}x{message.height}")
            self._short += not len(message.data) or len(message.data) < message.height * message.step
        kind = self._encodings.see(encoding)
        if kind not in self._readable:
            self._try(kind, read, message)
        if kind in self._readable:
            self._depth.add(message)

    def _try(self, encoding: str, read: Callable[[Any], np.ndarray], message: Any) -> None:
        try:
            pixels = read(message)
        except InputError as error:
            self._faults[encoding] = str(error)
            return
        self._readable.add(encoding)
        if self.type == COMPRESSED_IMAGE:
            self._sizes.see(f"{pixels.shape[1]}x{pixels.shape[0]}")

    def _take_stamp(self, stamp: int) -> None:
        self._all_stamps.append(stamp)

    def _intervals(self) -> tuple[float, int]:
        """The median interval in ns, and how many images are missing by it, not counting gaps."""
        steps = np.diff(np.frombuffer(self._all_stamps, np.int64))
        steps = steps[(steps > 0) & (steps <= FORWARD_JUMP_NS)]
        if not len(steps):
            return 0.0, 0
        median = statistics.median(steps.tolist())
        return median, int(np.maximum(np.rint(steps / median) - 1, 0).sum())

    def figures(self) -> dict[str, Any]:
        median, missing = self._intervals()
        return {
            **super().figures(),
            "encodings": dict(self._encodings),
            "resolutions": list(self._sizes),
            "median_interval_ms": median / 1e6,
            "missing_images": missing,
            "empty_or_short_images": self._short,
        }

    def findings(self) -> list[str]:
        found = super().findings()
        median, missing = self._intervals()
        if missing:
            found.append(
                f"{missing} images are missing, by the median interval of {median / 1e6:.1f} ms: record "
                f"compressed images, with a larger cache, or on a faster disk"
            )
        for encoding, count in self._encodings.items():
            if encoding not in self._readable:
                found.append(f"{count} images in {encoding} cannot be read: {self._faults[encoding]}")
        if depth := self._depth.finding():
            found.append(depth)
        if self._short:
            found.append(
                f"{self._short} images are empty, cut or no pictures: check the node that sends them"
            )
        if len(self._sizes) > 1 or len(self._encodings) > 1:
            kinds = ", ".join([*self._encodings, *self._sizes])
            found.append(f"the images change ({kinds}): only those of the first size are used")
        return found


def _is_whole(picture: np.ndarray) -> bool:
    """Whether a PNG or JPEG, or whatever else it is, has its end."""
    data = picture.tobytes()
    if data.startswith(b"\x89PNG"):
        return data.endswith(b"IEND\xaeB`\x82")
    # Some cameras fill up what follows the end.
    return data.rstrip(b"\0").endswith(b"\xff\xd9") if data.startswith(b"\xff\xd8") else bool(data)
