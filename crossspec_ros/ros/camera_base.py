"""Shared base of the camera nodes: publish sources as a driver would, and report their state."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

from event_camera_msgs.msg import EventPacket
from rclpy.executors import ExternalShutdownException
from rclpy.publisher import Publisher
from sensor_msgs.msg import Image

from crossspec_ros.captioning.health import Status
from crossspec_ros.errors import InputError, plain_text
from crossspec_ros.events.camera_source import Backlog, Source, Unusable
from crossspec_ros.events.cdr import RecordedMessage
from crossspec_ros.ros.diagnostics import Updater
from crossspec_ros.ros.messages import reliable
from crossspec_ros.ros.node import LOG_S, GuardedNode, Kind
from crossspec_ros.ros.run import NodeError
from crossspec_ros.telemetry.pulse import Pulse

_STOP_STEP_S = 0.1
_TOPICS = {"events": (EventPacket, "event_camera/events", 1000), "image": (Image, "camera/image_raw", 10)}
"""Type, name and queue depth of the topic of each kind of messages."""


class CameraNode(GuardedNode):
    """Publishes each source in its own thread, while `capture` waits for their end.

    `open_sources` returns the sources that settings of this kind name. The topics of
    `kinds_at_start` exist from the start, and other ones from their first message on.
    """

    def __init__(
        self,
        kind: type[Kind],
        open_sources: Callable[[Kind], Sequence[Source]],
        kinds_at_start: Sequence[str] = tuple(_TOPICS),
        **options: Any,
    ) -> None:
        super().__init__(kind.node, **options)
        self._sources = open_sources(self.declare(kind))
        self._topics: dict[str, Publisher] = {}
        for one in kinds_at_start:
            self._publisher(one)
        self._published = Counter[str](events=0, image=0)
        self._disconnections, self._unusable, self._dropped = (Counter[Source]() for _ in range(3))
        self._waiting: dict[Source, int] = {}
        self._complaints: dict[Source, str] = {}
        self._stop = threading.Event()
        self._pulses = {source: Pulse(_part(source)) for source in self._sources}
        self._updater = Updater(self, self._pulses.values)
        for source in self._sources:
            self._updater.add(_part(source), partial(self._fill, source))

    def capture(self) -> None:
        """Publish until a source fails.

        Raises InputError if a source is invalid, and ExternalShutdownException when ROS shuts down.
        """
        with ThreadPoolExecutor(len(self._sources), "camera") as pool:
            try:
                ends = [pool.submit(self._follow, source) for source in self._sources]
                while not (over := wait(ends, _STOP_STEP_S, FIRST_COMPLETED).done):
                    if not self.context.ok():
                        raise ExternalShutdownException
            finally:
                self.stop()
        for end in over:
            try:
                end.result()
            except InputError:
                raise
            except BaseException as error:
                raise NodeError(f"the camera's thread failed ({error!r}): restart the node") from error

    def stop(self) -> None:
        """End the threads."""
        for pulse in self._pulses.values():
            pulse.end()
        self._stop.set()

    def _follow(self, source: Source) -> None:
        """Publish the messages of a source, and log its connections and disconnections."""
        self._pulses[source].adopt()
        log, name = self.get_logger(), f"{_part(source)} of {source}"
        is_up, logged, lost_s = False, "never connected", -math.inf
        for item in source.items(self._stop, lambda: self.get_clock().now().nanoseconds):
            if isinstance(item, RecordedMessage):
                with self._pulses[source].busy():
                    self._publisher(item.kind).publish(item.data)
                self._published[item.kind] += 1
            elif isinstance(item, Unusable):
                self._unusable[source] += 1
                text = f"{name}: {item.why}, which is skipped: check the server"
                log.warning(plain_text(text), throttle_duration_sec=LOG_S)
            elif isinstance(item, Backlog):
                self._waiting[source] = item.waiting
                self._dropped[source] += item.dropped
            elif item.is_up:
                is_up = True
                self._complaints.pop(source, None)
                if logged:
                    log.info(f"{name}: connected")
                logged = ""
            else:
                complaint = self._complaints[source] = plain_text(f"{name}: {item.why}; trying again")
                self._disconnections[source] += is_up
                is_up = False
                # A server that reconnects all the time must not fill the log.
                if complaint != logged and time.monotonic() - lost_s >= LOG_S:
                    log.warning(complaint)
                    logged, lost_s = complaint, time.monotonic()

    def _publisher(self, kind: str) -> Publisher:
        """Return the publisher of a kind of messages, which the first call creates."""
        if kind not in self._topics:
            message, topic, depth = _TOPICS[kind]
            # A reliable publisher matches reliable and best-effort subscribers.
            self._topics[kind] = self.create_publisher(message, topic, reliable(depth))
        return self._topics[kind]

    def _fill(self, source: Source, status: Status) -> None:
        """Fill the row of a source in the diagnostics."""
        names = {"events": "packets", "image": "frames"}
        status.rates({names[kind]: self._published[kind] for kind in source.kinds})
        status.faults(
            {"disconnections": self._disconnections[source], "unusable_messages": self._unusable[source]}
        )
        if source in self._waiting:
            status.add("waiting_packets", self._waiting[source])
            status.faults({"dropped_packets": self._dropped[source]})
        if complaint := self._complaints.get(source):
            status.warn("connection", complaint)


def _part(source: Source) -> str:
    return " and ".join(source.kinds)
