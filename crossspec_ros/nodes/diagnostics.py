"""The health of a node as `/diagnostics`, once a second, and its share in `/diagnostics_agg`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.clock import Clock, ClockType
from rclpy.node import Node

from crossspec_ros.nodes.aggregate import HARDWARE_ID, Aggregate
from crossspec_ros.nodes.health import PartHealth, Reading
from crossspec_ros.nodes.memory_watch import MemoryWatch
from crossspec_ros.nodes.messages import key_values
from crossspec_ros.nodes.topic_watch import TopicWatch

__all__ = ["Diagnostics", "Reading"]


class Diagnostics:
    """Publishes one status per part of a node, and those of its memory and its topics."""

    def __init__(self, node: Node, read: Callable[[], Mapping[str, Reading]], topics: TopicWatch) -> None:
        self._node = node
        self._read = read
        self._topics = topics
        self._memory = MemoryWatch()
        self._parts: dict[str, PartHealth] = {}
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._aggregate = Aggregate(node)
        # Steady, because it must also tell when simulated time stands still.
        self._timer = node.create_timer(1.0, self._publish, clock=Clock(clock_type=ClockType.STEADY_TIME))

    def _publish(self) -> None:
        now_s = time.monotonic()
        message = DiagnosticArray()
        message.header.stamp = self._node.get_clock().now().to_msg()
        for part, reading in {**self._read(), "memory": self._memory.reading(now_s)}.items():
            warning, values = self._parts.setdefault(part, PartHealth()).update(now_s, reading)
            level = DiagnosticStatus.WARN if warning else DiagnosticStatus.OK
            self._add(message, part, level, warning or "OK", values)
        self._add(message, "topics", *self._topics.status())
        self._publisher.publish(message)
        self._aggregate.publish()

    def _add(
        self, message: DiagnosticArray, part: str, level: bytes, told: str, values: Mapping[str, str]
    ) -> None:
        # With its namespace, or a second instance's rows would take the place of the first one's.
        name = f"{self._node.get_fully_qualified_name().lstrip('/')}: {part}"
        message.status.append(
            DiagnosticStatus(
                level=level, name=name, message=told, hardware_id=HARDWARE_ID, values=key_values(values)
            )
        )
