"""Publish invalid messages of every type to every topic and service of our nodes, and check now and then
whether a valid window still gets its caption.

Its output is lines of JSON: `{"targets": [...]}`, and `{"sent": N, "captioned": true, "diagnosed": true}`
after each stretch.
"""

from __future__ import annotations

import json
import random
import struct
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from crossspec_msgs.msg import WindowReport
from diagnostic_msgs.msg import DiagnosticArray
from event_camera_msgs.msg import EventPacket
from rcl_interfaces.srv import GetParameters
from rclpy.client import Client
from rclpy.publisher import Publisher
from rclpy.serialization import serialize_message
from sensor_msgs.msg import CompressedImage, Image

from crossspec_lab.trials.bars import is_whole
from crossspec_lab.trials.message_values import FieldValues, interface
from crossspec_lab.trials.mutations import mutated
from crossspec_lab.trials.soak_collector import report_values
from crossspec_ros.events.cdr import event_packet, to_ns
from crossspec_ros.ros.messages import RELIABLE, image_message, reliable
from crossspec_ros.ros.node import GuardedNode
from crossspec_ros.ros.replay import EVENTS, IMAGE
from crossspec_ros.ros.run import NodeError, run
from crossspec_ros.settings import NODES as SETTINGS

NODES = tuple(SETTINGS)
PLAYED = {EVENTS: "player/events", f"{IMAGE}/compressed": "player/image"}
"""Topics of the player, by names at which no other node listens."""
STRETCH = 2_000
"""Unsound messages between two sound windows."""
_STARTUP_S, _PATIENCE_S = 120.0, 30.0
_FRAME_S = 0.04
_TWO_EVENTS = struct.pack("<2Q", *(1 << 63 | y << 48 | x << 32 for x, y in ((3, 4), (5, 6))))
_FAILED = "failed_callbacks"
_NOT_CALLED = "change_state", "set_parameters", "set_parameters_atomically"
"""Services whose valid calls stop captions."""


class FuzzPublisher(GuardedNode):
    """Finds out by itself what our nodes listen to."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__("fuzz_publisher", **options)
        self._rng = random.Random(seed)
        self._values = FieldValues(self._rng)
        self._reported = threading.Event()
        self._after_ns = 0
        self._diagnosed: dict[str, int] = {}
        self._health = self.create_subscription(DiagnosticArray, "/diagnostics", self._take_health, 100)
        self._heard = self.create_subscription(WindowReport, "captioner/report", self._take, RELIABLE)
        self._frames: Publisher | None = None
        self._events: Publisher | None = None
        self._outlets: list[Publisher] = []
        self._requests: list[Client] = []
        self._pings: list[Client] = []
        self._unanswered: set[Client] = set()
        # Without listeners the player waits.
        for kind, topic in zip((EventPacket, CompressedImage), PLAYED.values(), strict=True):
            self.create_subscription(kind, topic, lambda message: None, 1, raw=True)

    def stop(self) -> None:
        """Nothing runs on."""

    def find(self) -> list[str]:
        """Find the messages to send to our nodes; raises NodeError where they do not come up."""
        deadline_s = time.monotonic() + _STARTUP_S
        self._pings = [self.create_client(GetParameters, f"/{node}/get_parameters") for node in NODES]
        while not (
            self._types_heard(IMAGE)
            and self.count_publishers("captioner/report")
            and all(ping.service_is_ready() for ping in self._pings)
        ):
            if time.monotonic() > deadline_s:
                raise NodeError(f"{', '.join(NODES)} did not come up")
            time.sleep(0.1)
        for topic, _ in self.get_topic_names_and_types():
            # Others may publish other types there, and DDS allows a participant one.
            for kind in self._types_heard(topic):
                self._outlets.append(self.create_publisher(interface(kind), topic, reliable(10)))
        self._frames = self.create_publisher(Image, IMAGE, 10)
        self._events = self.create_publisher(EventPacket, EVENTS, reliable(100))
        for name, types in self.get_service_names_and_types():
            if name.startswith(tuple(f"/{node}/" for node in NODES)) and not name.endswith(_NOT_CALLED):
                self._requests += [self.create_client(interface(kind), name) for kind in types]
        return sorted({one.topic_name for one in self._outlets} | {one.srv_name for one in self._requests})

    def say(self, count: int) -> None:
        """So many unsound messages and requests."""
        while count > 0:
            count -= self._say_round(count)

    def _say_round(self, most: int) -> int:
        """One message to each topic and one request, until the nodes have read them; how many there were.

        More at once would push each other out of the queues unread.
        """
        outlets = self._rng.sample(self._outlets, min(most, len(self._outlets)))
        said = sum(map(self._publish, outlets))
        ready = [one for one in self._requests if one not in self._unanswered and one.service_is_ready()]
        if ready and said < most:
            self._request(self._rng.choice(ready))
            said += 1
        # Between two requests a node reads one message of each topic; it may have had the first one already.
        for _ in range(2):
            self._ping()
        return said

    def _ping(self) -> None:
        """Raises NodeError where a node does not answer."""
        answered = threading.Semaphore(0)
        for ping in self._pings:
            ping.call_async(GetParameters.Request()).add_done_callback(lambda _: answered.release())
        for _ in self._pings:
            if not answered.acquire(timeout=_PATIENCE_S):
                raise NodeError("a node does not answer requests any more")

    def are_well(self) -> dict[str, bool]:
        """Whether a window that begins now is captioned, and whether all nodes publish diagnostics."""
        assert self._frames is not None and self._events is not None
        self._after_ns = self.get_clock().now().nanoseconds
        self._reported.clear()
        self._diagnosed.clear()
        rng, end_s, number = np.random.default_rng(0), time.monotonic() + _PATIENCE_S, 0
        while not (self._reported.is_set() and self._all_diagnosed()) and time.monotonic() < end_s:
            now_ns = self.get_clock().now().nanoseconds
            pixels = rng.integers(0, 256, (64, 85, 3), np.uint8)
            self._frames.publish(image_message(pixels, now_ns, "camera"))
            packet = event_packet(now_ns, _TWO_EVENTS, "mono", (64, 48), number, time_base=now_ns)
            self._events.publish(packet)
            number += 1
            time.sleep(_FRAME_S)
        return {"captioned": self._reported.is_set(), "diagnosed": self._all_diagnosed()}

    def failed_callbacks(self) -> dict[str, int]:
        """Messages and requests that each node reported to have failed at."""
        return dict(self._diagnosed)

    def _all_diagnosed(self) -> bool:
        return set(self._diagnosed) == set(NODES)

    def _take(self, message: WindowReport) -> None:
        # A whole window after the last unsound message.
        if to_ns(message.window_start) > self._after_ns and is_whole(report_values(message)):
            self._reported.set()

    def _take_health(self, message: DiagnosticArray) -> None:
        for status in message.status:
            node, _, part = status.name.partition(": ")
            if node in NODES and part == "callbacks":
                self._diagnosed[node] = next(int(v.value) for v in status.values if v.key == _FAILED)

    def _types_heard(self, topic: str) -> set[str]:
        """Types to which our nodes subscribe there."""
        heard = self.get_subscriptions_info_by_topic(topic)
        return {one.topic_type for one in heard if one.node_name in NODES}

    def _publish(self, outlet: Publisher) -> bool:
        """Whether it went out: DDS itself refuses some, such as those that are too short to be any."""
        data = serialize_message(self._values.filled(outlet.msg_type(), time.time_ns()))
        try:
            outlet.publish(mutated(self._rng, data) if self._rng.random() < 0.3 else data)
        except RuntimeError:
            return False
        return True

    def _request(self, service: Client) -> None:
        request = self._values.filled(service.srv_type.Request(), time.time_ns())
        self._unanswered.add(service)
        service.call_async(request).add_done_callback(lambda _: self._unanswered.discard(service))


def main(args: Sequence[str] | None = None) -> None:
    """Say `COUNT` messages of `SEED`, the first two arguments."""
    given = list(sys.argv[1:] if args is None else args)
    count, seed = int(given[0]), int(given[1])

    def work(node: FuzzPublisher) -> None:
        _tell(targets=node.find())
        node.are_well()
        for sent in range(0, count, STRETCH):
            node.say(min(STRETCH, count - sent))
            _tell(sent=min(count, sent + STRETCH), **node.are_well())
        _tell(failed_callbacks=node.failed_callbacks())

    run(lambda **options: FuzzPublisher(seed, **options), given[2:], work)


def _tell(**what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
