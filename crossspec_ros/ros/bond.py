"""Heartbeat of a node for nav2's lifecycle manager, which treats a managed node without one as dead.

The protocol is that of the ROS package bond, for a node that is watched only: one `bond/msg/Status` per
period, and a last one at the end.
"""

from __future__ import annotations

import uuid

from rclpy.lifecycle import LifecycleNode

from crossspec_ros.ros.diagnostics import STEADY

try:
    from bond.msg import Status
except ImportError:  # the package comes with nav2
    Status = None

TOPIC = "bond"
PERIOD_S = 0.25
TIMEOUT_S = 4.0
"""Period and timeout of nav2's own nodes."""


class Bond:
    """Publishes heartbeats on the topic `bond`, from `start` to `stop`."""

    def __init__(self, node: LifecycleNode) -> None:
        self._node, self._instance = node, ""
        self._publisher = node.create_publisher(Status, TOPIC, 1)
        self._timer = node.create_timer(PERIOD_S, self._publish, clock=STEADY)
        self._timer.cancel()

    def start(self) -> None:
        """Begin a new bond."""
        self._instance = str(uuid.uuid4())
        self._publish()
        self._timer.reset()

    def stop(self) -> None:
        """End the bond with a last message, so that nav2 does not treat the node as dead."""
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
