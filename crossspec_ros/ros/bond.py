"""A node's heartbeat for nav2's lifecycle manager, which takes a managed node without one for dead.

The protocol is that of ROS's package bond (one `bond/msg/Status` a period, and a last one that says it ends),
of which a node that is only watched needs no more than this.
"""

from __future__ import annotations

import uuid

from rclpy.lifecycle import LifecycleNode

from crossspec_ros.ros.diagnostics import STEADY
from crossspec_ros.ros.messages import ros_time

try:
    from bond.msg import Status
except ImportError:  # it comes with nav2, and without nav2 nobody listens
    Status = None

TOPIC = "bond"
PERIOD_S = 0.25
TIMEOUT_S = 4.0
"""Both as nav2's own nodes have them."""


class Bond:
    """Tells on the topic `bond` that the node lives, until `stop`; only where nav2's messages are."""

    def __init__(self, node: LifecycleNode) -> None:
        self._node, self._instance = node, str(uuid.uuid4())
        self._publisher = node.create_publisher(Status, TOPIC, 1)
        self._timer = node.create_timer(PERIOD_S, self._tell, clock=STEADY)
        self._tell()

    def stop(self) -> None:
        """Tell that it ends on purpose."""
        self._node.destroy_timer(self._timer)
        if self._node.context.ok():
            self._tell(active=False)
        self._node.destroy_publisher(self._publisher)

    def _tell(self, active: bool = True) -> None:
        status = Status(id=self._node.get_name(), instance_id=self._instance, active=active)
        status.header.stamp = ros_time(self._node)
        status.heartbeat_period, status.heartbeat_timeout = PERIOD_S, TIMEOUT_S
        self._publisher.publish(status)


def make_bond(node: LifecycleNode) -> Bond | None:
    """A Bond from now on; None without nav2's messages."""
    return None if Status is None else Bond(node)
