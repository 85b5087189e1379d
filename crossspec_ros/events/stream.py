"""A stream of event messages becomes batches in ROS time, and its damage counters."""

from __future__ import annotations

from collections import Counter
from typing import Any

from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import DVS_EVENTS, EVENT_TYPES, is_end_mark, to_ns
from crossspec_ros.events.cdr import stamp_ns as cdr_stamp_ns
from crossspec_ros.events.clock import SensorClock
from crossspec_ros.events.dvs import DvsDecoder
from crossspec_ros.events.packet_decoder import PacketDecoder


class PacketStream:
    """Decodes `event_camera_msgs/EventPacket` messages."""

    raw = False

    def __init__(self) -> None:
        self.events = 0
        self.packets = 0
        self.frame_id = ""
        self.clock = SensorClock()
        self._decoder = PacketDecoder()
        self._reported_missing = 0

    @property
    def problems(self) -> Counter[str]:
        """Totals of everything that was wrong with the stream."""
        missing = Counter(missing_packets=self._decoder.missing)
        # Copied at once, for the stream is decoded in another thread.
        return missing + Counter(dict(self.clock.counts)) + self._decoder.damage

    def decode(self, message: Any, image_step_ns: int | None = None) -> tuple[int, EventBatch]:
        """Return the header's stamp in ns and the events with `t` in ns of ROS time.

        Raises InputError for a bad packet. A packet without payload means that the stream has reached its
        stamp. `image_step_ns` is that of `SensorClock.to_ros_ns`.
        """
        stamp_ns = to_ns(message.header.stamp)
        self.packets += 1
        self.frame_id = message.header.frame_id
        # A mark stands outside the driver's count.
        batch = EventBatch.empty(0, 0) if is_end_mark(message) else self._decoder.decode(message)
        self.events += len(batch)
        return stamp_ns, batch.at(self.clock.to_ros_ns(batch.t, stamp_ns, image_step_ns))

    def take_lost_packets(self) -> int:
        """Return the number of missing packets since the last call."""
        lost = self._decoder.missing - self._reported_missing
        self._reported_missing = self._decoder.missing
        return lost


class DvsStream:
    """Decodes `dvs_msgs/EventArray` from the serialized message; its event times are ROS time already."""

    raw = True
    clock = None

    def __init__(self) -> None:
        self.events = 0
        self.packets = 0
        self.frame_id = "event_camera"
        self._decoder = DvsDecoder()

    @property
    def problems(self) -> Counter[str]:
        """Totals of everything that was wrong with the stream."""
        return Counter(dict(self._decoder.damage))

    def decode(self, message: bytes, image_step_ns: int | None = None) -> tuple[int, EventBatch]:
        """Return the header's stamp in ns and the events with `t` in ns of ROS time; InputError if torn."""
        self.packets += 1
        stamp_ns = cdr_stamp_ns(message)
        batch = self._decoder.decode(message)
        self.events += len(batch)
        return stamp_ns, batch.at(batch.t * 1000)

    def take_lost_packets(self) -> int:
        """Return 0: these messages have no numbers."""
        return 0


def make_stream(event_type: str) -> PacketStream | DvsStream:
    """Return the stream of messages of this type, such as `event_camera_msgs/EventPacket`, its default."""
    is_dvs = EVENT_TYPES.get(event_type.replace("/", "/msg/")) == DVS_EVENTS
    return DvsStream() if is_dvs else PacketStream()
