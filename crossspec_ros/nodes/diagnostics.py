"""Counters of a node as `/diagnostics`, once a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.node import Node

from crossspec_ros.nodes.messages import key_values
from crossspec_ros.nodes.topic_watch import TopicWatch

Reading = tuple[Mapping[str, int], Mapping[str, int]]
"""What went through (totals, shown as rates) and what went wrong (totals)."""


class Diagnostics:
    """Publishes one status per part of a node, and that of its topics.

    A part warns while one of its problem counters rises.
    """

    def __init__(self, node: Node, read: Callable[[], Mapping[str, Reading]], topics: TopicWatch) -> None:
        self._node = node
        self._read = read
        self._topics = topics
        self._before: dict[str, Reading] = {}
        self._stamp = time.monotonic()
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._timer = node.create_timer(1.0, self._publish)

    def _publish(self) -> None:
        now = time.monotonic()
        seconds, self._stamp = now - self._stamp, now
        readings: dict[str, Reading] = {
            part: (dict(flow), dict(wrong)) for part, (flow, wrong) in self._read().items()
        }
        message = DiagnosticArray()
        message.header.stamp = self._node.get_clock().now().to_msg()
        for part, (flow, wrong) in readings.items():
            flow_before, wrong_before = self._before.get(part, ({}, {}))
            rates = {name: (total - flow_before.get(name, 0)) / seconds for name, total in flow.items()}
            rising = [name for name, total in wrong.items() if total > wrong_before.get(name, 0)]
            values = {f"{name}_per_s": f"{rate:.1f}" for name, rate in rates.items()}
            values |= {name: str(total) for name, total in wrong.items()}
            message.status.append(
                DiagnosticStatus(
                    level=DiagnosticStatus.WARN if rising else DiagnosticStatus.OK,
                    name=f"{self._node.get_name()}: {part}",
                    message=", ".join(rising).replace("_", " ") or "OK",
                    values=key_values(values),
                )
            )
        message.status.append(self._topics.status())
        self._publisher.publish(message)
        self._before = readings
