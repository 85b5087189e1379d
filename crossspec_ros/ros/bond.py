"""Heartbeat of a node for nav2's lifecycle manager, which takes a managed node without one for dead.

The protocol is that of ROS's package bond: one `bond/msg/Status` a period, and a last one at the end. A node
that is only watched needs no more than this.
"""

from __future__ import annotations

import uuid

from rclpy.lifecycle import LifecycleNode

from crossspec_ros.ros.diagnostics import STEADY

try:
    from bond.msg import Status
except ImportError:  # it comes with nav2, and without nav2 nobody listens
    Status = None

TOPIC = "bond"
PERIOD_S = 0.25
TIMEOUT_S = 4.0
"""Period and timeout of nav2's own nodes."""


class Bond:
    """Publishes on the topic `bond` that the node lives, from `start` to `stop`."""

    def __init__(self, node: LifecycleNode) -> None:
        self._node, self._instance = node, ""
        self._publisher = node.create_publisher(Status, TOPIC, 1)
        self._timer = node.create_timer(PERIOD_S, self._publish, clock=STEADY)
        self._timer.cancel()

    def start(self) -> None:
        """Begin a bond."""
        self._instance = str(uuid.uuid4())
        self._publish()
        self._timer.reset()

    def stop(self) -> None:
        """Publish that the bond ends on purpose."""
        self._timer.cancel()
        if self._node.context.ok():
            self._publish(active=False)

    def _publish(self, active: bool = True) -> None:
        status = Status(id=self._node.get_name(), instance_id=self._instance, active=active)
        status.header.stamp = self._node.get_clock().now().to_msg()
        status.heartbeat_period, status.heartbeat_timeout = PERIOD_S, TIMEOUT_S
        self._publisher.publish(status)


def make_bond(node: LifecycleNode) -> Bond | None:
    """Return a bond, or None without nav2's messages."""
    return None if Status is None else Bond(node)
