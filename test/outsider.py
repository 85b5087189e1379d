"""An external node, which uses only the topic names and types of the ROS interface."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import rclpy
from crossspec_msgs.msg import Answer, Caption, WindowClosed, WindowReport
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.executors import Executor, SingleThreadedExecutor
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image
from std_msgs.msg import Float64, String

RELIABLE = QoSProfile(depth=64, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.VOLATILE)
STAGES = ("total", "first_token", "event_encode", "draft_prefill", "draft_decode")
STAGES += ("target_prefill", "verify", "hidden", "queue")
TOPICS = {
    "/synchronizer/frame": Image,
    "/synchronizer/event_image": Image,
    "/synchronizer/window_closed": WindowClosed,
    "/captioner/caption": String,
    "/captioner/caption_stamped": Caption,
    "/captioner/caption_draft": Caption,
    "/captioner/caption_partial": Caption,
    "/captioner/caption_json": String,
    "/captioner/answers": Answer,
    "/captioner/report": WindowReport,
    "/captioner/acceptance_length": Float64,
    **{f"/captioner/latency/{stage}": Float64 for stage in STAGES},
    "/diagnostics": DiagnosticArray,
    "/clock": Clock,
}


class Outsider:
    """Collects all messages of the topics. `wait` blocks until a condition on them holds."""

    def __init__(self, node):
        self.node = node
        self.messages = {topic: [] for topic in TOPICS}
        self._changed = threading.Condition()
        for topic, kind in TOPICS.items():
            node.create_subscription(kind, topic, self._collector(topic), RELIABLE)

    def _collector(self, topic):
        def collect(message):
            with self._changed:
                self.messages[topic].append(message)
                self._changed.notify_all()

        return collect

    def __getitem__(self, topic):
        return self.messages[topic]

    def wait(self, condition, timeout_s=30.0):
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not condition():
                assert time.monotonic() < deadline, {t: len(m) for t, m in self.messages.items() if m}
                self._changed.wait(0.02)

    def reports(self):
        """Return (end of the window in ns, level, message, report) of every report."""
        return [(to_ns(r.header.stamp), r.level, r.message, r) for r in self["/captioner/report"]]

    def status(self, name):
        """Return (level, message, values) of the last diagnostic status of this name, or a stale one."""
        found = [s for array in self["/diagnostics"] for s in array.status if s.name == name]
        last = found[-1] if found else DiagnosticStatus(level=DiagnosticStatus.STALE)
        return last.level, last.message, {value.key: value.value for value in last.values}


@contextmanager
def outsider():
    """Yield an Outsider that spins in a thread."""
    with spinning(lambda: rclpy.create_node("outsider")) as node:
        yield Outsider(node)


@contextmanager
def spinning(make):
    """Create a node and spin it in its own thread. Initialise rclpy if necessary."""
    owner = not rclpy.ok()
    if owner:
        rclpy.init()
    try:
        node = make()
        executor = getattr(node, "make_executor", SingleThreadedExecutor)()
        executor.add_node(node)
        thread = threading.Thread(target=executor.spin, daemon=True)
        thread.start()
        try:
            yield node
        finally:
            # A subclass's own `shutdown` would wait for callbacks, which `stop` ends.
            Executor.shutdown(executor)
            thread.join(5.0)
            if hasattr(node, "stop"):
                node.stop()
            node.destroy_node()
    finally:
        if owner:
            rclpy.try_shutdown()


def take_away(node, publisher_or_subscription):
    """Destroy an endpoint in the thread that spins the node. From another thread, it may end that thread."""
    is_publisher = publisher_or_subscription in node.publishers
    destroy = node.destroy_publisher if is_publisher else node.destroy_subscription
    node.executor.create_task(destroy, publisher_or_subscription)


def state(node):
    """Return the lifecycle state of a node of this process."""
    return node._state_machine.current_state[1]


def to_ns(stamp):
    return stamp.sec * 10**9 + stamp.nanosec
