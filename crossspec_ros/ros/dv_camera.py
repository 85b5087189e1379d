"""The camera node: an iniVation camera or a dv network stream on the topics of a driver."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any

from event_camera_msgs.msg import EventPacket
from rclpy.executors import ExternalShutdownException
from sensor_msgs.msg import Image

from crossspec_ros.errors import InputError
from crossspec_ros.events.cdr import RecordedMessage
from crossspec_ros.events.dv_camera import Source, Unusable, open_sources
from crossspec_ros.plain_text import plain_text
from crossspec_ros.ros.boundary import LOG_S, GuardedNode
from crossspec_ros.ros.diagnostics import Diagnostics, Reading
from crossspec_ros.ros.messages import reliable
from crossspec_ros.ros.parameters import declare
from crossspec_ros.ros.run import ThreadError, run
from crossspec_ros.settings import CameraSettings
from crossspec_ros.telemetry.pulse import Pulse

_STOP_STEP_S = 0.1


class DvCameraNode(GuardedNode):
    """Publishes in threads, one for each source, while `capture` waits for their end in the calling one."""

    def __init__(self, **options: Any) -> None:
        super().__init__("dv_camera", automatically_declare_parameters_from_overrides=True, **options)
        settings = declare(self, CameraSettings)
        self._sources = open_sources(settings.source, settings.frames)
        # Subscribers may ask for either reliability; the synchronizer asks for none.
        self._topics = {
            "events": self.create_publisher(EventPacket, "event_camera/events", reliable(1000)),
            "image": self.create_publisher(Image, "camera/image_raw", reliable(10)),
        }
        self._published = Counter[str](events=0, image=0)
        self._disconnections, self._unusable = Counter[Source](), Counter[Source]()
        self._complaints: dict[Source, str] = {}
        self._stop = threading.Event()
        self._pulses = {source: Pulse(_part(source)) for source in self._sources}
        self._diagnostics = Diagnostics(self, self._read_counters, self._pulses.values)

    def capture(self) -> None:
        """Publish until a source fails.

        Raises InputError if a source cannot work, ExternalShutdownException if the node is to stop.
        """
        with ThreadPoolExecutor(len(self._sources), "dv_camera") as pool:
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
                raise ThreadError(f"the camera's thread has ended ({error!r}): start it again") from error

    def stop(self) -> None:
        """End the threads; `capture` then returns."""
        for pulse in self._pulses.values():
            pulse.end()
        self._stop.set()

    def _follow(self, source: Source) -> None:
        self._pulses[source].adopt()
        is_up, since_s = False, time.monotonic()
        # A server that comes and goes all the time must not fill the log: of its losses, few are told.
        told_s, is_told = -math.inf, True
        for item in source.items(self._stop, lambda: self.get_clock().now().nanoseconds):
            if isinstance(item, RecordedMessage):
                with self._pulses[source].busy():
                    self._topics[item.kind].publish(item.data)
                self._published[item.kind] += 1
            elif isinstance(item, Unusable):
                self._unusable[source] += 1
                why = plain_text(
                    f"{_what(source)}: {item.why}, which is skipped: check what the server sends"
                )
                self.get_logger().warning(why, throttle_duration_sec=LOG_S)
            elif item.is_up:
                self._complaints.pop(source, None)
                if is_told:
                    away_s = time.monotonic() - since_s
                    self.get_logger().info(f"{_what(source)} connected, after {away_s:.1f} s")
                is_up, is_told = True, False
            else:
                now_s = time.monotonic()
                if is_up or source not in self._complaints:
                    self._complaints[source] = plain_text(f"no {_what(source)}: {item.why}; trying again")
                    since_s, is_told = now_s, False
                if not is_told and now_s - told_s >= LOG_S:
                    self.get_logger().warning(self._complaints[source])
                    told_s, is_told = now_s, True
                self._disconnections[source] += is_up
                is_up = False

    def _read_counters(self) -> Mapping[str, Reading]:
        return {_part(source): self._reading(source) for source in self._sources}

    def _reading(self, source: Source) -> Reading:
        names = {"events": "packets", "image": "frames"}
        complaint = self._complaints.get(source)
        return Reading(
            {names[kind]: self._published[kind] for kind in source.kinds},
            {
                "disconnections": self._disconnections[source],
                "unusable_messages": self._unusable[source],
            },
            warnings={"connection": complaint} if complaint else {},
        )


def _part(source: Source) -> str:
    return " and ".join(source.kinds)


def _what(source: Source) -> str:
    return f"{_part(source)} of {source}"


def main(args: Sequence[str] | None = None) -> None:
    """Entry point of the executable `dv_camera`."""
    run(DvCameraNode, args, work=DvCameraNode.capture)


if __name__ == "__main__":
    main()
