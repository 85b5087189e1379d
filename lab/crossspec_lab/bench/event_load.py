"""Highest event rate of the synchronizer node: its process under the load of a driver, on topics.

`python -m crossspec_lab.bench.event_load RATE SECONDS` is the load: a node that publishes events to a
synchronizer and counts the events of closed windows. It prints one line when the load begins, and JSON.
"""

from __future__ import annotations

import json
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from crossspec_msgs.msg import WindowClosed as ClosedMessage
from event_camera_msgs.msg import EventPacket
from rclpy.executors import ExternalShutdownException
from sensor_msgs.msg import Image

from crossspec_lab.evt3_encoder import encode_evt3
from crossspec_lab.trials.processes import Child, cpu_seconds, status_mb
from crossspec_ros.environment import ros_environment
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import event_packet, to_ns
from crossspec_ros.events.cdr import stamp_ns as cdr_stamp_ns
from crossspec_ros.events.evt3 import TIME_HIGH
from crossspec_ros.ros.messages import RELIABLE, best_effort, closed_window
from crossspec_ros.ros.node import GuardedNode
from crossspec_ros.ros.run import run
from crossspec_ros.windows.grid import SECOND, WindowGrid
from crossspec_ros.windows.window import WindowClosed

WIDTH, HEIGHT = 640, 480
PACKET_US = 1024
"""A quarter of what TIME_LOW counts: of a packet's time words only the first changes as time goes on."""
_QUARTERS = 4
_PACKETS = 16 * _QUARTERS
_SEQ = 0x0123456789ABCDEF
"""Stands where a packet's number will be."""

_STARTUP_S, _PATIENCE_S = 20.0, 30.0
RATES = (1.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0)
"""Million events per second; DSEC's cameras give 10.6 on average."""
_MAX_LATE_MS = 100.0
"""A driver that is further behind than this does not give the rate it should."""
_MAX_BEHIND_MS = 1000.0
"""Queues hide for some seconds that a rate is too high; event images then come later and later."""


class Packets:
    """Any number of serialized EVT3 packets in a row, of `PACKET_US` each, with random pixels.

    `rate` is in million events per second, `offsets_us` (n,) has the times of the events in each packet.
    """

    def __init__(self, rate: float, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        count = max(1, round(rate * PACKET_US))
        self.offsets_us = np.arange(count) * PACKET_US // count
        self._messages: list[tuple[bytearray, int]] = []
        for index in range(_PACKETS):
            x, y, p = (rng.integers(0, size, count, np.uint16) for size in (WIDTH, HEIGHT, 2))
            t = index % _QUARTERS * PACKET_US + self.offsets_us
            payload = encode_evt3(EventBatch(t, x, y, p.astype(np.uint8), WIDTH, HEIGHT))
            message = event_packet(0, payload, "evt3", (WIDTH, HEIGHT), _SEQ)
            self._messages.append((bytearray(message), len(message) - len(payload)))
        self._seq_at = message.index(struct.pack("<Q", _SEQ))

    def message(self, index: int, stamp_ns: int) -> bytes:
        """Return the packet that begins at `index * PACKET_US` of the sensor's time."""
        message, payload_at = self._messages[index % _PACKETS]
        struct.pack_into("<iI", message, 4, *divmod(stamp_ns, SECOND))
        struct.pack_into("<Q", message, self._seq_at, index + 1)
        struct.pack_into("<H", message, payload_at, TIME_HIGH << 12 | index // _QUARTERS & 0xFFF)
        return bytes(message)


class LoadNode(GuardedNode):
    """Publishes in the thread that calls `measure`, while another one spins it."""

    def __init__(self, rate: float, seconds: float) -> None:
        super().__init__("event_load")
        self._rate, self._seconds, self._packets = rate, seconds, Packets(rate)
        self._images: list[tuple[int, int]] = []
        self._closed: dict[int, WindowClosed] = {}
        self._events = self.create_publisher(EventPacket, "events", best_effort(1000))
        self.create_subscription(Image, "synchronizer/event_image", self._take_image, RELIABLE, raw=True)
        self.create_subscription(ClosedMessage, "synchronizer/window_closed", self._take_closed, RELIABLE)

    def measure(self) -> dict[str, Any]:
        """Publish the load; return events sent and counted, lost packets, and times in ms.

        Raises TimeoutError without a synchronizer that closes the windows.
        """
        # Empty packets close windows once the subscription of the synchronizer receives them.
        self._wait(lambda: self._closed, time.time_ns, _STARTUP_S, "no synchronizer was found: start one")
        print(f"{self._rate:g} Mev/s for {self._seconds:g} s", flush=True)
        start_ns = time.time_ns()
        late_s, took_s = self._publish()
        end_ns = time.time_ns()
        # The last packet's events are after its stamp.
        last = WindowGrid().end(WindowGrid().index(end_ns + PACKET_US * 1000))
        complaint = "the synchronizer does not close the last window"
        self._wait(lambda: last in self._closed, lambda: last + SECOND, _PATIENCE_S, complaint)
        windows = [closed for end_ns, closed in self._closed.items() if end_ns > start_ns]
        # A slice that ends before the load begins waits for it, one that ends after it does not wait at all.
        latencies = [at - stamp for stamp, at in self._images if start_ns <= stamp <= end_ns]
        sent = len(late_s) * len(self._packets.offsets_us)
        return {
            "rate_mev_s": self._rate,
            "seconds": self._seconds,
            "sent_mev_s": sent / took_s / 1e6,
            "publishing_late_ms": _spread(late_s * 1e3),
            "events_sent": sent,
            "events_counted": sum(counts.events for counts in windows),
            "lost_packets": sum(counts.lost_packets for counts in windows),
            "event_images": sum(counts.event_images for counts in windows),
            "event_image_ms": _spread(np.array(latencies) / 1e6),
        }

    def stop(self) -> None:
        """Do nothing: the node has no threads."""

    def _publish(self) -> tuple[np.ndarray, float]:
        """Publish in real time; return the delay of each packet (n,) and the total time, in s."""
        packets = round(self._seconds * 1e6 / PACKET_US)
        late_s = np.zeros(packets)
        start_s = time.monotonic()
        for index in range(packets):
            due_s = start_s + (index + 1) * PACKET_US / 1e6
            time.sleep(max(0.0, due_s - time.monotonic()))
            late_s[index] = time.monotonic() - due_s
            self._events.publish(self._packets.message(index, time.time_ns()))
            if not self.context.ok():
                raise ExternalShutdownException
        return late_s, time.monotonic() - start_s

    def _wait(
        self, condition: Callable[[], object], stamp_ns: Callable[[], int], timeout_s: float, complaint: str
    ) -> None:
        """Publish empty packets with these stamps until the condition holds."""
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline_s:
                raise TimeoutError(complaint)
            self._events.publish(event_packet(stamp_ns(), b"", "evt3", (WIDTH, HEIGHT)))
            time.sleep(0.1)
            if not self.context.ok():
                raise ExternalShutdownException

    def _take_image(self, message: bytes) -> None:
        self._images.append((cdr_stamp_ns(message), time.time_ns()))

    def _take_closed(self, message: ClosedMessage) -> None:
        self._closed[to_ns(message.header.stamp)] = closed_window(message)


def _spread(values: np.ndarray) -> dict[str, float]:
    return {"median": float(np.median(values)), "max": float(values.max())}


def measure(rates: Sequence[float] = RATES, seconds: float = 5.0) -> list[dict[str, Any]]:
    """Return a row for each rate in million events per second, each on a fresh synchronizer, on Linux.

    A row has what `LoadNode.measure` returns, the synchronizer's `cpu_share` of one core, its `peak_mb` of
    memory, and `holds`: whether the load was on time, every event was counted and no event image came a
    second late. Raises RuntimeError when a rate cannot be measured.
    """
    environment = ros_environment(isolated=True)
    return [_measure(rate, seconds, environment) for rate in rates]


def highest(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the highest rate that holds like all lower rates, or 0."""
    best = 0.0
    for row in sorted(rows, key=lambda row: row["rate_mev_s"]):
        if not row["holds"]:
            break
        best = row["rate_mev_s"]
    return best


def _measure(rate: float, seconds: float, environment: Mapping[str, str]) -> dict[str, Any]:
    load_options = [str(rate), str(seconds)]
    with ExitStack() as stack:
        node = ["-m", "crossspec_ros.ros.synchronizer_node", "--ros-args", "-p", "event_image_size:=0"]
        synchronizer = Child(node, environment=environment)
        stack.callback(synchronizer.end)
        load = Child(["-m", "crossspec_lab.bench.event_load", *load_options], environment=environment)
        stack.callback(load.end)
        failure = f"{rate:g} Mev/s could not be measured: the load ended"
        # The load has found the synchronizer.
        load.wait(lambda: load.output, failure)
        before_s = cpu_seconds(synchronizer.pid)
        load.wait(lambda: load.lines, failure)
        if load.process.wait() or synchronizer.process.poll() is not None:
            raise RuntimeError(f"{rate:g} Mev/s could not be measured: a node has failed")
        row = load.lines[0]
        row["cpu_share"] = (cpu_seconds(synchronizer.pid) - before_s) / seconds
        row["peak_mb"] = status_mb("VmHWM", synchronizer.pid)
    row["holds"] = (
        row["publishing_late_ms"]["max"] <= _MAX_LATE_MS
        and row["event_image_ms"]["max"] <= _MAX_BEHIND_MS
        and row["events_counted"] == row["events_sent"]
    )
    return row


def main() -> None:
    """Run the load."""
    rate, seconds = map(float, sys.argv[1:])
    run(lambda: LoadNode(rate, seconds), [], work=lambda node: print(json.dumps(node.measure()), flush=True))


if __name__ == "__main__":
    main()
