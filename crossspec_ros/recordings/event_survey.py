"""A topic of events, counted packet by packet, and what is wrong with it."""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import islice
from tempfile import TemporaryFile, gettempdir
from typing import Any

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import DVS_EVENTS, EVENT_TYPES, is_end_mark
from crossspec_ros.events.clock import SensorClock
from crossspec_ros.events.dvs import DvsDecoder, is_dvs_end_mark
from crossspec_ros.events.packet_decoder import PacketDecoder
from crossspec_ros.recordings.topic_survey import Kinds, StampedSurvey, Times

PEAK_US = 10_000
_TOLERATED_BACK_US = 5_000
"""Events that come so late are still drawn in the right place (windows/slices.py)."""
_LIVE_RATE = 50e6
"""Events a second that one core cannot be sure to decode live."""
_PART = 100_000
_APART_US = 1_000_000
"""Time between an event and the stamp of its message that one clock does not explain."""
_MANY = 1000
"""Events that no sensor sends within a microsecond."""


class EventSurvey(StampedSurvey):
    """A topic of event packets or of dvs_msgs arrays.

    `absolute_stamps` says that a packet's stamp is the sensor's time of its first event, as in recordings
    that are no bags; the events' times, of which evt3 carries 24 bits only, are then told in full.
    """

    kind = "events"

    def __init__(self, topic: str, type_name: str, absolute_stamps: bool = False) -> None:
        super().__init__(topic, type_name)
        self.events = self.on = 0
        self._apart = Counter[bool]()
        self._absolute_stamps = absolute_stamps
        self._is_dvs = EVENT_TYPES[type_name] == DVS_EVENTS
        self._times = Times()
        self._clock = SensorClock()
        self._digest = StreamDigest()
        self._encodings, self._sizes, self._refused = Kinds(), Kinds(), Kinds()
        self._bins: dict[int, int] = {}
        self._peak = 0
        self._dvs = DvsDecoder()
        self._decoder = PacketDecoder()

    def _parse(self, data: bytes) -> Any:
        if self._is_dvs:
            return None if is_dvs_end_mark(data) else data
        packet = super()._parse(data)
        return None if is_end_mark(packet) else packet

    def _take(self, stamp: int, message: Any) -> None:
        if self._is_dvs:
            self._encodings.see("dvs")
            batch = self._dvs.decode(message)
            self._sizes.see(f"{batch.width}x{batch.height}")
            if len(batch):
                self._apart[abs(int(batch.t[0]) - stamp // 1000) > _APART_US] += 1
        else:
            self._encodings.see(message.encoding)
            self._sizes.see(f"{message.width}x{message.height}")
            try:
                batch = self._decoder.decode(message)
            except InputError as error:
                self._refused.see(str(error))
                return
            self._clock.to_ros_ns(batch.t, stamp)
        self._count(batch, stamp)

    def _count(self, batch: EventBatch, stamp: int) -> None:
        if not len(batch):
            return
        t = batch.t - batch.t[0] + stamp // 1000 if self._absolute_stamps else batch.t
        self._times.add_all(t)
        self._digest.add(batch)
        self.events += len(batch)
        self.on += int(np.count_nonzero(batch.p))
        # In parts: each event of a packet may be in a bin of its own.
        for part in range(0, len(t), _PART):
            bins = t[part : part + _PART] // PEAK_US
            starts = np.flatnonzero(np.diff(bins, prepend=bins[0] - 1))
            counts = np.diff(starts, append=len(bins))
            for key, count in zip(bins[starts].tolist(), counts.tolist(), strict=True):
                self._bins[key] = self._bins.get(key, 0) + count
                self._peak = max(self._peak, self._bins[key])
            # Only the latest can still grow.
            for key in list(islice(self._bins, max(0, len(self._bins) - 100))):
                del self._bins[key]

    def damage(self) -> Counter[str]:
        """Counts of what could not be decoded, by kind."""
        return self._dvs.damage + self._decoder.damage

    def figures(self) -> dict[str, Any]:
        """All that is known; ends the digest, so only to be asked once."""
        # A single time that is far away would make the rate next to nothing.
        span_us = self.stamps.span() // 1000 if self.strays else self._times.span()
        return {
            **super().figures(),
            "encodings": dict(self._encodings),
            "resolutions": dict(self._sizes),
            "events": self.events,
            "on": self.on,
            "off": self.events - self.on,
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
        if self.events >= _MANY and not self._times.span() and not self._times.back:
            found.append(
                f"all {self.events} events have one time, {self._times.first} us, so they are one picture: "
                f"store the time of each"
            )
        if self._apart[True] > self._apart[False]:
            found.append(
                f"the events' times and the stamps of their messages are on two clocks: the first event of "
                f"{self._apart[True]} of {self._apart.total()} messages is more than a second from its "
                f"stamp, so no window has both events and images: set the stamps by the events' times"
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


_DIGEST_BLOCK = 1 << 20


class StreamDigest:
    """SHA-256 over x (little-endian uint16) of the whole stream, then y (likewise), then p (uint8).

    y and p come after the last x, so they wait in temporary files (in TMPDIR, 3 bytes an event): that costs
    less than decoding the recording three times, and no memory.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._waiting = [TemporaryFile() for _ in "yp"]  # noqa: SIM115 (finish() closes them)

    def add(self, batch: EventBatch) -> None:
        """Take the stream's next events; raises InputError when the temporary folder is full."""
        self._hash.update(_bytes(batch.x, "<u2"))
        try:
            for file, values, kind in zip(self._waiting, (batch.y, batch.p), ("<u2", "u1"), strict=True):
                file.write(_bytes(values, kind))
        except OSError as error:
            raise InputError(
                f"'{gettempdir()}' cannot take 3 bytes an event ({error.strerror}): set TMPDIR to a folder "
                f"that can"
            ) from error

    def finish(self) -> str:
        """The digest as 64 hex digits; nothing can be added after it."""
        for file in self._waiting:
            file.seek(0)
            while block := file.read(_DIGEST_BLOCK):
                self._hash.update(block)
            file.close()
        return self._hash.hexdigest()


def _bytes(values: np.ndarray, kind: str) -> memoryview:
    return np.ascontiguousarray(values, kind).data.cast("B")
