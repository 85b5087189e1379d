"""A topic of a recording: its figures, and findings with their remedies."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from array import array
from collections import Counter
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.camera_images import camera_array, compressed_array, wide_samples
from crossspec_ros.events.cdr import (
    COMPRESSED_IMAGE,
    DVS_EVENTS,
    EVENT_TYPES,
    is_end_mark,
    stamp_ns,
    typestore,
)
from crossspec_ros.events.dvs import DvsDecoder, is_dvs_end_mark
from crossspec_ros.events.packet_decoder import PacketDecoder
from crossspec_ros.events.stamps import FORWARD_JUMP_NS, find_strays
from crossspec_ros.recordings.bag_storage import Topic

_SECOND = 1_000_000_000
_MAX_BACK_US = 5_000
"""Later events are dropped (windows/slices.py)."""
_DEPTH_IMAGES = 50


class Times:
    """First and last of a sequence of times, and how often and how far it goes back."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.last: int | None = None
        self.back = self.furthest_back = 0

    def add(self, time: int) -> None:
        """Add one time."""
        self.add_all(np.array([time]))

    def add_all(self, times: np.ndarray) -> None:
        """Add times (N,), int64 of any unit and at least one."""
        first = int(times[0])
        steps = times[1:] - times[:-1]
        back = [self.last - first] if self.last is not None and first < self.last else []
        if len(steps) and steps.min() < 0:
            back += (-steps[steps < 0]).tolist()
        self.back += len(back)
        self.furthest_back = max(self.furthest_back, *back, 0)
        self.first = first if self.first is None else self.first
        self.last = int(times[-1])

    def ends(self) -> list[int]:
        """Return the first and the last time, or nothing."""
        return [] if self.first is None or self.last is None else [self.first, self.last]

    def span(self) -> int:
        """Return the time from the first to the last, 0 where there are none."""
        ends = self.ends()
        return ends[1] - ends[0] if ends else 0


class TopicSurvey:
    """A topic of any type: number of messages, and when they were recorded."""

    kind = "other"

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.messages = 0
        self.recorded = Times()

    def add(self, log_ns: int, data: bytes) -> None:
        """Add the topic's next message: its time of recording and its CDR bytes."""
        self.messages += 1
        self.recorded.add(log_ns)

    def finish(self) -> None:
        """Finish what waits for further messages."""

    def figures(self) -> dict[str, Any]:
        """Return all figures, ready for JSON."""
        span_s = self.recorded.span() / _SECOND
        return {
            "topic": self.topic.name,
            "type": self.topic.type,
            "kind": self.kind,
            "messages": self.messages,
            "rate_hz": (self.messages - 1) / span_s if span_s > 0 else None,
            "first_recorded_ns": self.recorded.first,
            "last_recorded_ns": self.recorded.last,
        }

    def findings(self) -> list[str]:
        """Return a sentence with the remedy for each fault."""
        return []


class StampedSurvey(TopicSurvey):
    """A topic of events or images, whose messages are read."""

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        self.stamps = Times()
        self._strays = self._gaps = self._longest_gap_ns = 0
        self._found = array("q")
        self._unreadable: Counter[str] = Counter()
        self._encodings: Counter[str] = Counter()
        self._sizes: Counter[str] = Counter()

    def add(self, log_ns: int, data: bytes) -> None:
        super().add(log_ns, data)
        try:
            stamp, message = stamp_ns(data), self._parse(data)
        except MemoryError:
            raise
        # rosbags promises no exception for damaged bytes.
        except Exception as error:
            self._unreadable[str(error) or type(error).__name__] += 1
            return
        if message is not None:
            self._found.append(stamp)
            self._take(stamp, message)

    def finish(self) -> None:
        for _, stamp, is_stray in find_strays((None, stamp) for stamp in self._found):
            if is_stray:
                self._strays += 1
                continue
            gap_ns = stamp - (stamp if self.stamps.last is None else self.stamps.last)
            if gap_ns > FORWARD_JUMP_NS:
                self._gaps += 1
                self._longest_gap_ns = max(self._longest_gap_ns, gap_ns)
            self.stamps.add(stamp)

    def ends_ns(self) -> list[int]:
        """Return the first and last time by which windows sort the messages, or nothing."""
        return self.stamps.ends()

    def _parse(self, data: bytes) -> Any:
        """Return the message, or None for one of a player."""
        return typestore().deserialize_cdr(data, EVENT_TYPES.get(self.topic.type, self.topic.type))

    @abstractmethod
    def _take(self, stamp: int, message: Any) -> None: ...

    def figures(self) -> dict[str, Any]:
        return {
            **super().figures(),
            "first_stamp_ns": self.stamps.first,
            "last_stamp_ns": self.stamps.last,
            "stamps_back": self.stamps.back,
            "furthest_stamp_back_ms": self.stamps.furthest_back / 1e6,
            "stray_stamps": self._strays,
            "gaps": self._gaps,
            "longest_gap_s": self._longest_gap_ns / _SECOND,
            "unreadable_messages": self._unreadable.total(),
            "encodings": dict(self._encodings),
        }

    def findings(self) -> list[str]:
        found = []
        if self._unreadable:
            reason, _ = self._unreadable.most_common(1)[0]
            found.append(
                f"{self._unreadable.total()} of {self.messages} messages are no {self.topic.type} "
                f"({reason}): copy the recording again, or check which definition its recorder had"
            )
        if self._strays:
            found.append(
                f"{self._strays} stamps lie far from those before and behind them, so windows ignore them: "
                f"check the node that sets the stamps"
            )
        if self._gaps:
            found.append(
                f"{self._gaps} gaps are longer than {FORWARD_JUMP_NS // _SECOND} s, the longest is "
                f"{self._longest_gap_ns / _SECOND:.1f} s: replay skips them"
            )
        if self.stamps.back:
            found.append(
                f"the stamps go back {self.stamps.back} times, by up to "
                f"{self.stamps.furthest_back / 1e6:.1f} ms: synchronise the clock of this camera's host, and "
                f"let one node publish here"
            )
        if len(self._sizes) > 1 or len(self._encodings) > 1:
            kinds = ", ".join([*self._encodings, *self._sizes])
            found.append(
                f"the encoding or size changes ({kinds}): windows end at each change, so "
                f"record one camera a topic"
            )
        return found


class EventSurvey(StampedSurvey):
    """A topic of event packets or of dvs_msgs arrays.

    `absolute_stamps` means that a packet's stamp is the sensor's time of its first event, as in recordings
    other than bags. The report then has full times of events, of which evt3 carries 24 bits only.
    """

    kind = "events"

    def __init__(self, topic: Topic, absolute_stamps: bool = False) -> None:
        super().__init__(topic)
        self.events = self._on = 0
        self._absolute_stamps = absolute_stamps
        self._is_dvs = EVENT_TYPES[topic.type] == DVS_EVENTS
        self._times = Times()
        self._digest = StreamDigest()
        self._refused: Counter[str] = Counter()
        self._dvs, self._packets = DvsDecoder(), PacketDecoder()

    def ends_ns(self) -> list[int]:
        return [time * 1000 for time in self._times.ends()] if self._is_dvs else super().ends_ns()

    def _parse(self, data: bytes) -> Any:
        if self._is_dvs:
            return None if is_dvs_end_mark(data) else data
        packet = super()._parse(data)
        return None if is_end_mark(packet) else packet

    def _take(self, stamp: int, message: Any) -> None:
        try:
            batch = self._dvs.decode(message) if self._is_dvs else self._packets.decode(message)
        except InputError as error:
            self._refused[str(error)] += 1
            batch = None
        sized = message if batch is None else batch
        self._encodings["dvs" if self._is_dvs else message.encoding] += 1
        self._sizes[f"{sized.width}x{sized.height}"] += 1
        if batch is None or not len(batch):
            return
        self._times.add_all(batch.t - batch.t[0] + stamp // 1000 if self._absolute_stamps else batch.t)
        self._digest.add(batch)
        self.events += len(batch)
        self._on += int(np.count_nonzero(batch.p))

    def _damage(self) -> Counter[str]:
        return self._dvs.damage + self._packets.damage

    def figures(self) -> dict[str, Any]:
        """Return all figures; this ends the digest, so call it once."""
        # A single time that is far away would make the rate next to nothing.
        span_us = self.stamps.span() // 1000 if self._strays else self._times.span()
        return {
            **super().figures(),
            "resolutions": dict(self._sizes),
            "events": self.events,
            "on": self._on,
            "off": self.events - self._on,
            "first_event_us": self._times.first,
            "last_event_us": self._times.last,
            "events_per_s": self.events / span_us * 1e6 if span_us > 0 else None,
            "sha256": self._digest.finish(),
            "missing_packets": self._packets.missing,
            "seq_restarts": self._packets.restarts,
            "event_times_back": self._times.back,
            "furthest_event_back_us": self._times.furthest_back,
            "undecoded_packets": self._refused.total(),
            "damage": dict(self._damage()),
        }

    def findings(self) -> list[str]:
        found = super().findings()
        found += [f"{count} packets were not decoded: {reason}" for reason, count in self._refused.items()]
        if self._packets.missing:
            found.append(
                f"{self._packets.missing} packets are missing, by the gaps in `seq`: record with a larger "
                f"cache, on a faster disk, or with a reliable subscription"
            )
        if self._packets.restarts:
            found.append(
                f"`seq` starts over {self._packets.restarts} times: the driver was restarted, or two of them "
                f"publish here"
            )
        damage = self._damage()
        if outside := damage.pop("events_outside_sensor", 0):
            found.append(
                f"{outside} events are outside the sensor of {', '.join(self._sizes)} pixels: check the "
                f"width and height that the driver sends"
            )
        if damage:
            kinds = ", ".join(f"{kind.replace('_', ' ')} {count}" for kind, count in sorted(damage.items()))
            found.append(
                f"some of the data could not be decoded ({kinds}), the rest was: check cable and driver, or "
                f"copy the recording again"
            )
        if self.messages and not (self.events or self._refused or self._unreadable or damage or outside):
            found.append(
                f"all {self.messages} messages are empty: check the driver, or open the camera's lens"
            )
        if self._times.furthest_back > _MAX_BACK_US:
            found.append(
                f"the events' times go back {self._times.back} times, by up to "
                f"{self._times.furthest_back / 1e3:.1f} ms: the sensor was restarted or overloaded; above "
                f"{_MAX_BACK_US / 1e3:.0f} ms events are dropped as late"
            )
        return found


class ImageSurvey(StampedSurvey):
    """A topic of raw or compressed images. Images of each encoding are read until one succeeds."""

    kind = "images"

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        self._readable: set[str] = set()
        self._faults: dict[str, str] = {}
        self._short = self._wide = self._largest = 0

    def _take(self, stamp: int, message: Any) -> None:
        is_compressed = self.topic.type == COMPRESSED_IMAGE
        encoding = message.format if is_compressed else message.encoding
        self._encodings[encoding] += 1
        if is_compressed:
            self._short += not _has_end(message.data)
        else:
            self._sizes[f"{message.width}x{message.height}"] += 1
            self._short += not len(message.data) or len(message.data) < message.height * message.step
        try:
            if encoding not in self._readable:
                pixels = compressed_array(message) if is_compressed else camera_array(message)
                self._readable.add(encoding)
                if is_compressed:
                    self._sizes[f"{pixels.shape[1]}x{pixels.shape[0]}"] += 1
            samples = None if is_compressed or self._wide == _DEPTH_IMAGES else wide_samples(message)
            if samples is not None:
                self._wide += 1
                self._largest = max(self._largest, int(samples.max()))
        except InputError as error:
            self._faults.setdefault(encoding, str(error))

    def figures(self) -> dict[str, Any]:
        return {
            **super().figures(),
            "resolutions": list(self._sizes),
            "empty_or_short_images": self._short,
        }

    def findings(self) -> list[str]:
        found = super().findings()
        for encoding, fault in self._faults.items():
            if encoding not in self._readable:
                found.append(f"{self._encodings[encoding]} images in {encoding} cannot be read: {fault}")
        if self._short:
            found.append(
                f"{self._short} images are empty, cut or no pictures: check the node that sends them"
            )
        if 0 < self._largest < 1 << 14:
            found.append(
                f"the largest sample of 16 bits is {self._largest} in the first {self._wide} images, and "
                f"captions use the upper 8 bits: let the camera publish mono8, rgb8 or bgr8, or all 16 bits"
            )
        return found


class StreamDigest:
    """SHA-256 over x (little-endian uint16) of the whole stream, then y (uint16), then p (uint8).

    y and p wait in temporary files (in TMPDIR, 3 bytes an event) until the last x has been added.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._waiting = [TemporaryFile() for _ in "yp"]  # noqa: SIM115 (finish() closes them)

    def add(self, batch: EventBatch) -> None:
        """Add the stream's next events."""
        self._hash.update(np.ascontiguousarray(batch.x, "<u2").data)
        for file, values, kind in zip(self._waiting, (batch.y, batch.p), ("<u2", "u1"), strict=True):
            file.write(np.ascontiguousarray(values, kind).data)

    def finish(self) -> str:
        """Return the digest as 64 hex digits; nothing can be added after it."""
        for file in self._waiting:
            file.seek(0)
            while block := file.read(1 << 20):
                self._hash.update(block)
            file.close()
        return self._hash.hexdigest()


def _has_end(picture: np.ndarray) -> bool:
    data = picture.tobytes()
    if data.startswith(b"\x89PNG"):
        return data.endswith(b"IEND\xaeB`\x82")
    # Some cameras fill up the rest of the buffer.
    return data.rstrip(b"\0").endswith(b"\xff\xd9") if data.startswith(b"\xff\xd8") else bool(data)
