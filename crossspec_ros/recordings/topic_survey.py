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
from crossspec_ros.events.stamp_judge import amount
from crossspec_ros.events.stamps import FORWARD_JUMP_NS, find_strays
from crossspec_ros.recordings.bag_storage import Topic

_SECOND = 1_000_000_000
_FINDINGS = {
    "stray_stamps": "{stray_stamps} stamps lie far from those before and behind them, by up to "
    "{furthest_stray}, so windows ignore them: check the node that sets the stamps, and let it publish alone",
    "gaps": "{gaps} gaps are longer than 10 s, the longest is {longest_gap_s:.1f} s: replay skips them",
    "stamps_back": "the stamps go back {stamps_back} times, by up to {furthest_stamp_back_ms:.1f} ms: "
    "synchronise the clock of this camera's host, and let one node publish here",
    "missing_packets": "{missing_packets} packets are missing, by the gaps in `seq`: record with a larger "
    "cache, on a faster disk, or with a reliable subscription",
}
"""Meanings of figures that are above 0."""


class TopicSurvey:
    """A topic of any type: number of messages, and when they were recorded."""

    kind = "other"

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.recorded = array("q")

    def add(self, log_ns: int, data: bytes) -> None:
        """Add the topic's next message: its time of recording and its CDR bytes."""
        self.recorded.append(log_ns)

    def figures(self) -> dict[str, Any]:
        """Return all figures, ready for JSON, once all messages are there."""
        count = len(self.recorded)
        first, last = (self.recorded[0], self.recorded[-1]) if count else (None, None)
        span_s = (last - first) / _SECOND if first is not None and last is not None else 0.0
        return {
            "topic": self.topic.name,
            "type": self.topic.type,
            "kind": self.kind,
            "messages": count,
            "rate_hz": (count - 1) / span_s if span_s > 0 else None,
            "first_recorded_ns": first,
            "last_recorded_ns": last,
        }

    def findings(self, figures: dict[str, Any]) -> list[str]:
        """Return a sentence with the remedy for each fault that the figures show."""
        return [text.format_map(figures) for name, text in _FINDINGS.items() if figures.get(name)]


class StampedSurvey(TopicSurvey):
    """A topic of events or images, whose messages are read."""

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        self._stamps = array("q")
        self._lags = array("q")
        self._unreadable: Counter[str] = Counter()
        self._encodings: Counter[str] = Counter()
        self._sizes: Counter[str] = Counter()

    def add(self, log_ns: int, data: bytes) -> None:
        super().add(log_ns, data)
        try:
            stamp, message = stamp_ns(data), self._parse(data)
            if message is not None:
                self._stamps.append(stamp)
                self._lags.append(stamp - log_ns)
                self._take(stamp, message)
        except MemoryError:
            raise
        except InputError as error:
            self._unreadable[str(error)] += 1
        # rosbags promises no exception for damaged bytes.
        except Exception as error:
            reason = str(error) or type(error).__name__
            self._unreadable[
                f"they are no {self.topic.type} ({reason}): copy the recording again, or check which "
                f"definition its recorder had"
            ] += 1

    @property
    def lag_ns(self) -> int:
        """How far the stamps are ahead of the recorder's clock."""
        return int(np.median(self._lags))

    def _parse(self, data: bytes) -> Any:
        """Return the message, or None for one of a player."""
        return typestore().deserialize_cdr(data, EVENT_TYPES.get(self.topic.type, self.topic.type))

    @abstractmethod
    def _take(self, stamp: int, message: Any) -> None: ...

    def figures(self) -> dict[str, Any]:
        judged = [*find_strays((None, stamp) for stamp in self._stamps)]
        stamps = np.array([stamp for _, stamp, is_stray in judged if not is_stray], np.int64)
        before_ns, furthest_ns = None, 0
        for _, stamp, is_stray in judged:
            if not is_stray:
                before_ns = stamp
            elif before_ns is not None:
                furthest_ns = max(furthest_ns, abs(stamp - before_ns))
        steps = np.diff(stamps)
        gaps = steps[steps > FORWARD_JUMP_NS]
        return {
            **super().figures(),
            "first_stamp_ns": int(stamps[0]) if len(stamps) else None,
            "last_stamp_ns": int(stamps[-1]) if len(stamps) else None,
            "stamps_back": int(np.count_nonzero(steps < 0)),
            "furthest_stamp_back_ms": -int(steps.min(initial=0)) / 1e6,
            "stray_stamps": len(judged) - len(stamps),
            "furthest_stray": amount(furthest_ns),
            "gaps": len(gaps),
            "longest_gap_s": int(gaps.max(initial=0)) / _SECOND,
            "unreadable_messages": self._unreadable.total(),
            "encodings": dict(self._encodings),
        }

    def findings(self, figures: dict[str, Any]) -> list[str]:
        found = super().findings(figures)
        for reason, count in self._unreadable.most_common(3):
            found.append(f"{count} of {figures['messages']} messages cannot be read: {reason}")
        return found


class EventSurvey(StampedSurvey):
    """A topic of event packets or of dvs_msgs arrays."""

    kind = "events"

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        self.is_dvs = EVENT_TYPES[topic.type] == DVS_EVENTS
        self._events = self._on = 0
        self._first_us: int | None = None
        self._last_us: int | None = None
        self._sha = hashlib.sha256()
        # They wait until the last x has been added.
        self._waiting = [TemporaryFile() for _ in "yp"]  # noqa: SIM115 (_digest closes them)
        self._dvs, self._packets = DvsDecoder(), PacketDecoder()

    def _parse(self, data: bytes) -> Any:
        if self.is_dvs:
            return None if is_dvs_end_mark(data) else data
        packet = super()._parse(data)
        return None if is_end_mark(packet) else packet

    def _take(self, stamp: int, message: Any) -> None:
        if self.is_dvs:
            batch = self._dvs.decode(message)
            self._count("dvs", batch)
        else:
            self._count(message.encoding, message)
            batch = self._packets.decode(message)
        if not len(batch):
            return
        self._first_us = int(batch.t[0]) if self._first_us is None else self._first_us
        self._last_us = int(batch.t[-1])
        self._sha.update(np.ascontiguousarray(batch.x, "<u2").data)
        for file, values, kind in zip(self._waiting, (batch.y, batch.p), ("<u2", "u1"), strict=True):
            file.write(np.ascontiguousarray(values, kind).data)
        self._events += len(batch)
        self._on += int(np.count_nonzero(batch.p))

    def _digest(self) -> str:
        """Return the SHA-256 over x (little-endian uint16) of all events, then y (uint16), then p (uint8)."""
        for file in self._waiting:
            with file:
                file.seek(0)
                while block := file.read(1 << 20):
                    self._sha.update(block)
        return self._sha.hexdigest()

    def _count(self, encoding: str, sized: Any) -> None:
        self._encodings[encoding] += 1
        self._sizes[f"{sized.width}x{sized.height}"] += 1

    def figures(self) -> dict[str, Any]:
        """Return all figures; this ends the digest, so call it once."""
        figures = super().figures()
        span_us = (self._last_us or 0) - (self._first_us or 0)
        # A single time that is far away would make the rate next to nothing.
        if figures["stray_stamps"] and figures["first_stamp_ns"] is not None:
            span_us = (figures["last_stamp_ns"] - figures["first_stamp_ns"]) // 1000
        return {
            **figures,
            "resolutions": dict(self._sizes),
            "events": self._events,
            "on": self._on,
            "off": self._events - self._on,
            "first_event_us": self._first_us,
            "last_event_us": self._last_us,
            "events_per_s": self._events / span_us * 1e6 if span_us > 0 else None,
            "sha256": self._digest(),
            "missing_packets": self._packets.missing,
            "damage": dict(self._dvs.damage + self._packets.damage),
        }

    def findings(self, figures: dict[str, Any]) -> list[str]:
        found = super().findings(figures)
        if damage := figures["damage"]:
            kinds = ", ".join(f"{kind.replace('_', ' ')} {count}" for kind, count in sorted(damage.items()))
            found.append(
                f"some of the data could not be decoded ({kinds}; the sensor has {', '.join(self._sizes)} "
                f"pixels), the rest was: check cable and driver, or copy the recording again"
            )
        elif self.recorded and not self._events and not self._unreadable:
            count = len(self.recorded)
            found.append(f"all {count} messages are empty: check the driver, or open the camera's lens")
        return found


class ImageSurvey(StampedSurvey):
    """A topic of raw or compressed images. Compressed images are decoded until one succeeds."""

    kind = "images"

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        self._largest = 0

    def _take(self, stamp: int, message: Any) -> None:
        if self.topic.type == COMPRESSED_IMAGE:
            self._encodings[message.format] += 1
            # Some cameras fill up the rest of the buffer behind the end of a JPEG or PNG.
            if not message.data.tobytes().rstrip(b"\0").endswith((b"\xff\xd9", b"IEND\xaeB`\x82")):
                raise InputError("an image is empty, cut or no picture: check the node that sends it")
            if not self._sizes:
                height, width, _ = compressed_array(message).shape
                self._sizes[f"{width}x{height}"] += 1
            return
        self._encodings[message.encoding] += 1
        self._sizes[f"{message.width}x{message.height}"] += 1
        camera_array(message)
        if (samples := wide_samples(message)) is not None:
            self._largest = max(self._largest, int(samples.max()))

    def figures(self) -> dict[str, Any]:
        return {**super().figures(), "resolutions": list(self._sizes)}

    def findings(self, figures: dict[str, Any]) -> list[str]:
        found = super().findings(figures)
        if 0 < self._largest < 1 << 14:
            found.append(
                f"the largest sample of 16 bits is {self._largest}, and captions use the upper 8 bits: let "
                f"the camera publish mono8, rgb8 or bgr8, or all 16 bits"
            )
        return found
