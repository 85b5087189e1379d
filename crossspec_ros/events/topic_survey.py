"""What one topic of a recording holds, counted message by message, and what is wrong with it."""

from __future__ import annotations

import statistics
from array import array
from collections import Counter
from typing import Any

import cv2
import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import NO_TRIGGERS, EventBatch
from crossspec_ros.events.clock import SensorClock
from crossspec_ros.events.dvs import DvsDecoder
from crossspec_ros.events.messages import (
    COMPRESSED_IMAGE,
    DVS_EVENTS,
    EVENT_PACKET,
    IMAGE,
    LEGACY_EVENT_PACKET,
    stamp_ns,
    typestore,
)
from crossspec_ros.events.packet_decoder import PacketDecoder
from crossspec_ros.events.stream_digest import StreamDigest

PEAK_US = 10_000
_SECOND = 1_000_000_000
_TOLERATED_BACK_US = 5_000
"""Events that come so late are still drawn in the right place (windows/synchronizer.py)."""
_TELLING_DELAY_NS = _SECOND
_LIVE_RATE = 50e6
"""Events a second that one core cannot be sure to decode live."""


class Times:
    """First and last of a sequence of times, and how often and how far it goes back."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.last: int | None = None
        self.back = 0
        self.furthest_back = 0

    def add(self, times: np.ndarray) -> None:
        """Take the next times (N,), int64 of any unit."""
        if not len(times):
            return
        if self.first is None or self.last is None:
            self.first = self.last = int(times[0])
        steps = np.diff(times, prepend=np.int64(self.last))
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
        self.recorded.add(np.array([recorded_ns]))

    def figures(self) -> dict[str, Any]:
        """All that is known, ready for JSON."""
        span_s = self.recorded.span() / _SECOND
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


class StampedSurvey(TopicSurvey):
    """A topic whose messages are read; a message that cannot be read is counted."""

    def __init__(self, topic: str, type_name: str) -> None:
        super().__init__(topic, type_name)
        self.stamps = Times()
        self.unreadable: Counter[str] = Counter()
        self._delay_sum_ns = 0
        # The legacy name has no definition of its own.
        self._definition = EVENT_PACKET if type_name == LEGACY_EVENT_PACKET else type_name

    def add(self, recorded_ns: int, data: bytes) -> None:
        super().add(recorded_ns, data)
        try:
            stamp, message = stamp_ns(data), self._parse(data)
        # rosbags promises no exception for damaged bytes; struct.error, ValueError and others were seen.
        except Exception as error:
            self.unreadable[str(error) or type(error).__name__] += 1
            return
        self.stamps.add(np.array([stamp]))
        self._delay_sum_ns += recorded_ns - stamp
        self._take(stamp, message)

    def _parse(self, data: bytes) -> Any:
        return typestore().deserialize_cdr(data, self._definition)

    def _take(self, stamp: int, message: Any) -> None:
        raise NotImplementedError

    def _delay_ns(self) -> float:
        return self._delay_sum_ns / max(1, self.messages - self.unreadable.total())

    def figures(self) -> dict[str, Any]:
        return {
            **super().figures(),
            "first_stamp_ns": self.stamps.first,
            "last_stamp_ns": self.stamps.last,
            "stamps_back": self.stamps.back,
            "furthest_stamp_back_ms": self.stamps.furthest_back / 1e6,
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
        if self.stamps.back:
            found.append(
                f"the stamps go back {self.stamps.back} times, by up to "
                f"{self.stamps.furthest_back / 1e6:.1f} ms: a clock was set while recording, or several "
                f"nodes publish here"
            )
        if abs(self._delay_ns()) > _TELLING_DELAY_NS:
            found.append(
                f"the stamps are {self._delay_ns() / _SECOND:.1f} s behind the times of recording on "
                f"average: check that the cameras' hosts have one clock, since windows go by the stamps"
            )
        return found


class EventSurvey(StampedSurvey):
    """A topic of event packets or of dvs_msgs arrays.

    `absolute_stamps` says that a packet's stamp is the sensor's time of its first event, as in recordings
    that are no bags; the events' times, of which evt3 carries 24 bits only, are then told in full.
    """

    kind = "events"

    def __init__(self, topic: str, type_name: str, absolute_stamps: bool = False) -> None:
        super().__init__(topic, type_name)
        self.events = self.on = 0
        self._absolute_stamps = absolute_stamps
        self._times = Times()
        self._clock = SensorClock()
        self._digest = StreamDigest()
        self._encodings: Counter[str] = Counter()
        self._sizes: Counter[str] = Counter()
        self._edges: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._bins: dict[int, int] = {}
        self._peak = 0
        self._dvs = DvsDecoder()
        self._decoder = PacketDecoder()

    def _parse(self, data: bytes) -> Any:
        return data if self.type == DVS_EVENTS else super()._parse(data)

    def _take(self, stamp: int, message: Any) -> None:
        if self.type == DVS_EVENTS:
            self._encodings["dvs"] += 1
            batch, triggers = self._dvs.decode(message), NO_TRIGGERS
            self._sizes[f"{batch.width}x{batch.height}"] += 1
        else:
            self._encodings[message.encoding] += 1
            self._sizes[f"{message.width}x{message.height}"] += 1
            try:
                batch, triggers = self._decoder.decode(message), self._decoder.triggers
            except InputError as error:
                self._refused[str(error)] += 1
                return
            self._clock.to_ros_ns(batch.t, stamp)
        self._count(batch, stamp)
        rising = int(triggers.p.sum())
        self._edges.update(rising=rising, falling=len(triggers) - rising)

    def _count(self, batch: EventBatch, stamp: int) -> None:
        if not len(batch):
            return
        t = batch.t - batch.t[0] + stamp // 1000 if self._absolute_stamps else batch.t
        self._times.add(t)
        self._digest.add(batch)
        self.events += len(batch)
        self.on += int(np.count_nonzero(batch.p))
        bins = t // PEAK_US
        starts = np.flatnonzero(np.diff(bins, prepend=bins[0] - 1))
        for start, count in zip(starts.tolist(), np.diff(starts, append=len(bins)).tolist(), strict=True):
            key = int(bins[start])
            self._bins[key] = self._bins.get(key, 0) + count
            self._peak = max(self._peak, self._bins[key])
        # Only the latest can still grow.
        for key in list(self._bins)[:-100]:
            del self._bins[key]

    def damage(self) -> Counter[str]:
        """What could not be decoded, by kind."""
        return self._dvs.damage + self._decoder.damage

    def figures(self) -> dict[str, Any]:
        """All that is known; ends the digest, so only to be asked once."""
        span_us = self._times.span()
        return {
            **super().figures(),
            "encodings": dict(self._encodings),
            "resolutions": dict(self._sizes),
            "events": self.events,
            "on": self.on,
            "off": self.events - self.on,
            "triggers_rising": self._edges["rising"],
            "triggers_falling": self._edges["falling"],
            "first_event_us": self._times.first,
            "last_event_us": self._times.last,
            "events_per_s": self.events / span_us * 1e6 if span_us > 0 else None,
            "peak_events_per_10_ms": self._peak,
            "sha256": self._digest.finish(),
            "missing_packets": self._decoder.missing,
            "seq_restarts": self._decoder.restarts,
            "event_times_back": self._times.back,
            "furthest_event_back_us": self._times.furthest_back,
            "clock_jumps": self._clock.counts["clock_jumps"],
            "late_packets": self._clock.counts["late_packets"],
            "undecoded_packets": self._refused.total(),
            "damage": dict(self.damage()),
        }

    def findings(self) -> list[str]:
        found = super().findings()
        found += [f"{count} packets were not decoded: {reason}" for reason, count in self._refused.items()]
        if len(self._sizes) > 1 or len(self._encodings) > 1:
            kinds = ", ".join([*self._encodings, *self._sizes])
            found.append(
                f"the stream changes its encoding or size ({kinds}): only events of the first size are "
                f"drawn, so record one camera a topic"
            )
        if self._decoder.missing:
            found.append(
                f"{self._decoder.missing} packets are missing, by the gaps in `seq`: record with a larger "
                f"cache, on a faster disk, or with a reliable subscription"
            )
        if self._decoder.restarts:
            found.append(
                f"`seq` starts over {self._decoder.restarts} times: the driver was restarted, or two of them "
                f"publish here"
            )
        damage = self.damage()
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
        if self._times.furthest_back > _TOLERATED_BACK_US:
            found.append(
                f"the events' times go back {self._times.back} times, by up to "
                f"{self._times.furthest_back / 1e3:.1f} ms: the sensor was restarted or overloaded; above "
                f"{_TOLERATED_BACK_US / 1e3:.0f} ms events are dropped as late"
            )
        if jumps := self._clock.counts["clock_jumps"]:
            found.append(
                f"the sensor's clock and the stamps part by more than half a second {jumps} times: one of "
                f"the clocks was set, or the recording has a hole"
            )
        if self._peak * 1e6 / PEAK_US > _LIVE_RATE:
            found.append(
                f"the event rate peaks at {self._peak / PEAK_US:.1f} million a second ({self._peak} within "
                f"10 ms), more than one core is sure to decode live: lower the camera's sensitivity or limit "
                f"its rate"
            )
        return found


class ImageSurvey(StampedSurvey):
    """A topic of raw or compressed images; of compressed ones only the first is unpacked, for its size, and
    the others are looked at where they end.
    """

    kind = "images"

    def __init__(self, topic: str, type_name: str) -> None:
        super().__init__(topic, type_name)
        self._encodings: Counter[str] = Counter()
        self._sizes: Counter[str] = Counter()
        self._all_stamps = array("q")
        self._short = 0

    def _take(self, stamp: int, message: Any) -> None:
        self._all_stamps.append(stamp)
        if self.type == COMPRESSED_IMAGE:
            self._encodings[message.format] += 1
            if not self._sizes and len(message.data):
                picture = cv2.imdecode(message.data, cv2.IMREAD_UNCHANGED)
                if picture is None:
                    self._short += 1
                else:
                    self._sizes[f"{picture.shape[1]}x{picture.shape[0]}"] += 1
            self._short += not _is_whole(message.data)
        else:
            self._encodings[message.encoding] += 1
            self._sizes[f"{message.width}x{message.height}"] += 1
            self._short += not len(message.data) or len(message.data) < message.height * message.step

    def _intervals(self) -> tuple[float, int]:
        """The median interval in ns, and how many images are missing by it."""
        steps = np.diff(np.frombuffer(self._all_stamps, np.int64))
        steps = steps[steps > 0]
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


def make_survey(topic: str, type_name: str, absolute_stamps: bool = False) -> TopicSurvey:
    """The survey that fits a topic's type."""
    if type_name in (EVENT_PACKET, LEGACY_EVENT_PACKET, DVS_EVENTS):
        return EventSurvey(topic, type_name, absolute_stamps)
    if type_name in (IMAGE, COMPRESSED_IMAGE):
        return ImageSurvey(topic, type_name)
    return TopicSurvey(topic, type_name)
