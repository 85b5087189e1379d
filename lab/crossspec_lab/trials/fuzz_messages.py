"""`crossspec fuzz messages`: nodes survive invalid messages, and no memory grows.

All nodes are real processes with the tiny pair: synchronizer, captioner, a player without captions, and a
dv_camera without a camera. This process publishes invalid messages to all of their topics and services, and
checks after each stretch that a valid window still gets its caption.
"""

from __future__ import annotations

import struct
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
from crossspec_msgs.msg import WindowReport
from diagnostic_msgs.msg import DiagnosticArray
from event_camera_msgs.msg import EventPacket
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from rcl_interfaces.srv import GetParameters
from rclpy.client import Client
from rclpy.publisher import Publisher
from rclpy.serialization import serialize_message
from rich.progress import track
from sensor_msgs.msg import CompressedImage, Image

from crossspec_lab.trials.fuzz import run_examples
from crossspec_lab.trials.processes import Child, MemoryWatch, free_ports, is_complete, memory_bars
from crossspec_lab.trials.strategies import damaged, interface, messages
from crossspec_ros.events.cdr import event_packet, to_ns
from crossspec_ros.parameter import Value
from crossspec_ros.paths import share_dir
from crossspec_ros.ros.messages import RELIABLE, image_message, reliable
from crossspec_ros.ros.node import GuardedNode
from crossspec_ros.ros.replay import EVENTS, IMAGE, command
from crossspec_ros.ros.run import NodeError, run
from crossspec_ros.settings import EVENT_TYPES
from crossspec_ros.settings import NODES as SETTINGS

NODES = tuple(name for name in SETTINGS if name != "usb_camera")
"""Nodes that start here; usb_camera needs a library that no set-up has."""
LOG = Path(tempfile.gettempdir()) / "crossspec_fuzz.log"
"""Log of the nodes."""
_PLAYED = {EVENTS: "player/events", f"{IMAGE}/compressed": "player/image"}
"""Topics of the player, by names at which no other node listens."""
_STRETCH = 2_000
"""Invalid messages between two valid windows."""
_WARM_SHARE = 0.3
"""Share of the time before growth counts: buffers and memories fill until then."""
_STARTUP_S, _PATIENCE_S = 120.0, 30.0
_FRAME_S = 0.04
_TWO_EVENTS = struct.pack("<2Q", *(1 << 63 | y << 48 | x << 32 for x, y in ((3, 4), (5, 6))))
_FAILED = "failed_callbacks"
_NOT_CALLED = "change_state", "set_parameters", "set_parameters_atomically"
"""Services whose valid calls stop captions."""


def fuzz(count: int, seed: int) -> dict[str, Any]:
    """Publish `count` invalid messages; return figures of the nodes, captions and memory. On Linux.

    Exits with a sentence if the nodes do not start.
    """
    figures: dict[str, Any] = {"messages": 0, "seed": seed, "targets": []}
    figures |= dict.fromkeys(("valid_windows", "captioned", "diagnosed"), 0)
    with ExitStack() as stack:
        LOG.unlink(missing_ok=True)
        nodes = {name: Child(words[1:], LOG) for name, words in _commands().items()}
        for node in nodes.values():
            stack.callback(node.end)
        watch, begun_s = MemoryWatch({name: node.pid for name, node in nodes.items()}), time.monotonic()

        def work(publisher: FuzzPublisher) -> None:
            figures["targets"] = publisher.find()
            publisher.check()
            with suppress(NodeError, Flaky):
                for sent in track(range(0, count, _STRETCH), "publishing"):
                    stretch = min(_STRETCH, count - sent)
                    run_examples(publisher.send, stretch, seed + sent, (Phase.generate,))
                    figures["messages"] += stretch
                    figures["valid_windows"] += 1
                    for name, holds in publisher.check().items():
                        figures[name] += holds
            figures[_FAILED] = dict(publisher.failed_callbacks)

        run(FuzzPublisher, [], work)
        watch.stop()
        codes = {name: node.process.poll() for name, node in nodes.items()}
    figures["ended"] = {name: code for name, code in codes.items() if code is not None}
    figures["rss"] = watch.figures(_WARM_SHARE * (time.monotonic() - begun_s))
    bars = {
        "nodes live": not figures["ended"] and figures["messages"] == count,
        "captions": figures["captioned"] == figures["valid_windows"] > 0,
        "diagnostics": figures["diagnosed"] == figures["valid_windows"],
        **memory_bars(figures["rss"]),
    }
    return figures | {"missed_bars": [name for name, is_met in bars.items() if not is_met]}


def _commands() -> dict[str, list[str]]:
    config = share_dir() / "config"
    # Types are set, because no publisher exists before the fuzzer has found the subscriptions.
    types = {"event_type": EVENT_TYPES[0], "image_transport": "raw"}
    played: dict[str, Value] = {
        "path": str(share_dir() / "rosbags" / "synthetic_drive"),
        "caption_timeout_s": 86_400.0,
    }
    heard = {"captioner/report": "player/report", "synchronizer/frame": "player/frame"}
    (port,) = free_ports(1)
    return {
        "synchronizer": command("synchronizer", config / "live.yaml", types),
        # A caption memory fills for hours, which would look like a leak.
        "captioner": command("captioner", config / "live.yaml", {"memory": "none"}),
        "dsec_player": command("dsec_player", config / "replay.yaml", played, heard | _PLAYED),
        "dv_camera": command("dv_camera", config / "live.yaml", {"source": f"tcp://127.0.0.1:{port}"}),
    }


class FuzzPublisher(GuardedNode):
    """Finds the subscriptions and services of our nodes by itself, and publishes to them."""

    def __init__(self, **options: Any) -> None:
        super().__init__("fuzz_publisher", **options)
        self.failed_callbacks: dict[str, int] = {}
        """Messages and requests at which each node failed, by its diagnostics since the last check."""
        self._reported = threading.Event()
        self._after_ns = 0
        self._sent = 0
        self._outlets: list[Publisher] = []
        self._requests: list[Client] = []
        self._unanswered: set[Client] = set()
        self._pings: list[Client] = [
            self.create_client(GetParameters, f"/{node}/get_parameters") for node in NODES
        ]
        self._frames = self.create_publisher(Image, IMAGE, 10)
        self._events = self.create_publisher(EventPacket, EVENTS, reliable(100))
        self.create_subscription(DiagnosticArray, "/diagnostics", self._take_health, 100)
        self.create_subscription(WindowReport, "captioner/report", self._take_report, RELIABLE)
        # Without subscriptions the player waits.
        for kind, topic in zip((EventPacket, CompressedImage), _PLAYED.values(), strict=True):
            self.create_subscription(kind, topic, lambda message: None, 1, raw=True)

    def stop(self) -> None:
        """Do nothing: the node has no threads."""

    def find(self) -> list[str]:
        """Return all topics and services of our nodes; raises NodeError if the nodes do not start."""
        deadline_s = time.monotonic() + _STARTUP_S
        while not (
            self._types_heard(IMAGE)
            and self.count_publishers("captioner/report")
            and all(ping.service_is_ready() for ping in self._pings)
        ):
            if time.monotonic() > deadline_s:
                raise NodeError(f"{', '.join(NODES)} did not start: see {LOG}")
            time.sleep(0.1)
        for topic, _ in self.get_topic_names_and_types():
            # Other nodes may publish other types there, and DDS allows a participant one.
            for kind in self._types_heard(topic):
                self._outlets.append(self.create_publisher(interface(kind), topic, reliable(10)))
        for name, types in self.get_service_names_and_types():
            if name.startswith(tuple(f"/{node}/" for node in NODES)) and not name.endswith(_NOT_CALLED):
                self._requests += [self.create_client(interface(kind), name) for kind in types]
        return sorted({one.topic_name for one in self._outlets} | {one.srv_name for one in self._requests})

    def send(self, data: st.DataObject) -> None:
        """Publish a drawn message to a topic, or send a request; raises NodeError if a node is deaf."""
        if data.draw(st.integers(0, len(self._outlets))):
            outlet = data.draw(st.sampled_from(self._outlets))
            message = serialize_message(data.draw(messages(outlet.msg_type)))
            # DDS rejects some, such as too short ones.
            with suppress(RuntimeError):
                outlet.publish(data.draw(damaged(message)) if data.draw(st.integers(0, 2)) == 2 else message)
        else:
            service = data.draw(st.sampled_from(self._requests))
            request = data.draw(messages(service.srv_type.Request))
            if service not in self._unanswered and service.service_is_ready():
                self._unanswered.add(service)
                future = service.call_async(request)
                future.add_done_callback(lambda _: self._unanswered.discard(service))
        self._sent += 1
        # More messages at once would push each other out of the queues unread.
        if self._sent % len(self._outlets) == 0:
            self._ping()

    def _ping(self) -> None:
        """Wait until all nodes have read their messages; raises NodeError if one does not answer."""
        # A node reads one message of each topic between two requests.
        for _ in range(2):
            futures = [ping.call_async(GetParameters.Request()) for ping in self._pings]
            end_s = time.monotonic() + _PATIENCE_S
            while not all(future.done() for future in futures):
                if time.monotonic() > end_s:
                    raise NodeError("a node does not answer requests any more")
                time.sleep(0.001)

    def check(self) -> dict[str, bool]:
        """Return whether a window that begins now is captioned, and whether all nodes publish diagnostics."""
        self._after_ns = self.get_clock().now().nanoseconds
        self._reported.clear()
        self.failed_callbacks.clear()
        rng, found = np.random.default_rng(0), dict[str, bool]()
        for number in range(round(_PATIENCE_S / _FRAME_S)):
            now_ns = self.get_clock().now().nanoseconds
            pixels = rng.integers(0, 256, (64, 85, 3), np.uint8)
            self._frames.publish(image_message(pixels, now_ns, "camera"))
            packet = event_packet(now_ns, _TWO_EVENTS, "mono", (64, 48), number, time_base=now_ns)
            self._events.publish(packet)
            time.sleep(_FRAME_S)
            is_diagnosed = self.failed_callbacks.keys() == set(NODES)
            found = {"captioned": self._reported.is_set(), "diagnosed": is_diagnosed}
            if all(found.values()):
                break
        return found

    def _take_report(self, message: WindowReport) -> None:
        # A complete window after the last invalid message.
        if to_ns(message.window_start) > self._after_ns and is_complete(message):
            self._reported.set()

    def _take_health(self, message: DiagnosticArray) -> None:
        for status in message.status:
            node, _, part = status.name.partition(": ")
            if node in NODES and part == "callbacks":
                self.failed_callbacks[node] = next(int(v.value) for v in status.values if v.key == _FAILED)

    def _types_heard(self, topic: str) -> set[str]:
        """Return the types of our nodes' subscriptions to a topic."""
        heard = self.get_subscriptions_info_by_topic(topic)
        return {one.topic_type for one in heard if one.node_name in NODES}
